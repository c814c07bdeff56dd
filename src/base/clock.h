#ifndef EBB_BASE_CLOCK_H_
#define EBB_BASE_CLOCK_H_

#include <chrono>

namespace ebb {

// Returns the time of a monotonic clock, in seconds.
inline double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace ebb

#endif  // EBB_BASE_CLOCK_H_
