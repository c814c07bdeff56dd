// A progress bar on stderr, for work that a person would wait for. Draws nothing when stderr is no
// terminal that takes escape sequences, or before half a second has passed; takes itself away when
// it is done.
#ifndef EBB_APPS_TERMINAL_PROGRESS_H_
#define EBB_APPS_TERMINAL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ebb::cli {

class ProgressBar {
 public:
  enum class Display { kAuto, kOff };  // kOff: --quiet
  using Clock = std::chrono::steady_clock;
  // title: "reading the prompt"; unit: "tokens". now: tells the time; null: the system's.
  ProgressBar(std::string_view title, std::string_view unit, int64_t total, Display display,
              std::function<Clock::time_point()> now = nullptr);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second.
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
