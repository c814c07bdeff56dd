#include "apps/common/terminal/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/terminal/say.h"
#include "apps/common/terminal/screen.h"

namespace ebb::cli {

using namespace std::chrono_literals;

namespace {

// Returns the number of columns of the terminal on stderr.
size_t Columns() {
  constexpr int kUsual = 80;
  const int columns = TerminalColumns(STDERR_FILENO, kUsual);
  return static_cast<size_t>(columns < 2 ? kUsual : columns);
}

}  // namespace

ProgressBar::ProgressBar(std::string_view title, std::string_view unit, int64_t total,
                         Display display, std::function<Clock::time_point()> now)
    : now_(now != nullptr ? std::move(now) : Clock::now),
      title_(title),
      unit_(unit),
      total_(std::max<int64_t>(total, 1)),
      enabled_(display == Display::kAuto && TakesEscapes(STDERR_FILENO)),
      start_(now_()),
      last_draw_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) SayWithEscapes("\r\033[K");
}

void ProgressBar::Update(int64_t done) {
  if (!enabled_) return;
  const Clock::time_point now = now_();
  if (now - start_ < 500ms || (drawn_ && now - last_draw_ < 100ms)) return;
  drawn_ = true;
  last_draw_ = now;
  constexpr int kWidth = 30;
  const double share =
      std::clamp(static_cast<double>(done) / static_cast<double>(total_), 0.0, 1.0);
  const int full = static_cast<int>(share * kWidth);
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const std::string line = fmt::format("{} [{:=<{}}{: <{}}] {:3.0f} % {} of {} {}, {:.0f}/s",
                                       title_, "", full, "", kWidth - full, share * 100, done,
                                       total_, unit_, static_cast<double>(done) / seconds);
  // A line that went on in the next row would leave its first row behind when it is redrawn.
  SayWithEscapes("\r\033[K" + line.substr(0, Columns() - 1));
  std::fflush(stderr);
}

}  // namespace ebb::cli
