#include "apps/common/terminal/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>

namespace ebb::cli {
namespace {

using namespace std::chrono_literals;
using testing::EndsWith;
using testing::HasSubstr;
using Display = ProgressBar::Display;

// Returns the output of `work` on stderr while stderr is a terminal.
std::string OnTerminal(const std::function<void()>& work) {
  int terminal = -1;
  int program_end = -1;
  setenv("TERM", "xterm", 1);
  EXPECT_EQ(openpty(&terminal, &program_end, nullptr, nullptr, nullptr), 0);
  const int saved = dup(STDERR_FILENO);
  dup2(program_end, STDERR_FILENO);
  work();
  fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text;
  pollfd file = {terminal, POLLIN, 0};
  while (poll(&file, 1, 50) > 0) {
    char buffer[4096];
    const ssize_t count = read(terminal, buffer, sizeof(buffer));
    if (count <= 0) break;
    text.append(buffer, static_cast<size_t>(count));
  }
  close(program_end);
  close(terminal);
  return text;
}

// ManualClock is a clock that a test advances.
class ManualClock {
 public:
  void Advance(std::chrono::milliseconds by) { time_ += by; }
  [[nodiscard]] auto Now() const {
    return [this] { return time_; };
  }

 private:
  ProgressBar::Clock::time_point time_;
};

TEST(ProgressBarTest, ShowsItselfOnATerminalAfterAMomentAndGoesAway) {
  const std::string text = OnTerminal([] {
    ManualClock clock;
    ProgressBar bar("reading", "tokens", 200, Display::kAuto, clock.Now());
    clock.Advance(499ms);
    bar.Update(10);
    clock.Advance(1ms);
    bar.Update(100);
    clock.Advance(99ms);
    bar.Update(101);  // too soon
  });
  EXPECT_THAT(text, HasSubstr("reading [===============               ]  50 % 100 of 200 tokens"));
  EXPECT_THAT(text, testing::Not(HasSubstr("10 of")));
  EXPECT_THAT(text, testing::Not(HasSubstr("101 of")));
  EXPECT_THAT(text, EndsWith("\r\033[K"));
}

TEST(ProgressBarTest, IsSilentWhenTheWorkIsShortOrNobodyWantsIt) {
  EXPECT_EQ(OnTerminal([] {
              ManualClock clock;
              ProgressBar bar("reading", "tokens", 2, Display::kAuto, clock.Now());
              bar.Update(1);
            }),
            "");
  EXPECT_EQ(OnTerminal([] {
              ManualClock clock;
              ProgressBar bar("reading", "tokens", 2, Display::kOff, clock.Now());
              clock.Advance(550ms);
              bar.Update(1);
            }),
            "");
}

}  // namespace
}  // namespace ebb::cli
