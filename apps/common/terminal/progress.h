// Draws a progress bar on stderr for work that a person waits for. Draws nothing if stderr is not a
// terminal that understands escape sequences, or in the first half second; erases the bar at the
// end.
#ifndef EBB_APPS_TERMINAL_PROGRESS_H_
#define EBB_APPS_TERMINAL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ebb::cli {

// ProgressBar draws a bar with a rate on stderr if that is a terminal, and erases it at the end.
class ProgressBar {
 public:
  enum class Display { kAuto, kOff };  // kOff: --quiet
  using Clock = std::chrono::steady_clock;
  // Starts a bar; `title` is such as "reading the prompt", `unit` such as "tokens". `now` returns
  // the time; null for the system's clock.
  ProgressBar(std::string_view title, std::string_view unit, int64_t total, Display display,
              std::function<Clock::time_point()> now = nullptr);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Sets the number of units done. Draws at most ten times a second, and not in the first half
  // second.
  void Update(int64_t done);

 private:
  std::function<Clock::time_point()> now_;
  std::string title_;
  std::string unit_;
  int64_t total_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_draw_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_PROGRESS_H_
