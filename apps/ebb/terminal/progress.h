// A progress bar on stderr, for work that a person would wait for. Draws nothing when stderr is no
// terminal, or before half a second has passed; takes itself away when it is done.
#ifndef EBB_APPS_TERMINAL_PROGRESS_H_
#define EBB_APPS_TERMINAL_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace ebb::cli {

class ProgressBar {
 public:
  enum class Display { kAuto, kOff };  // kOff: --quiet
  // title: "reading the prompt"; unit: "tokens".
  ProgressBar(std::string_view title, std::string_view unit, int64_t total, Display display);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws at most ten times a second.
  void Update(int64_t done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string title_;
  std::string unit_;
  int64_t total_;
  bool enabled_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_draw_ = start_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_PROGRESS_H_
