// The virtual time of a simulated device: when each queue is free, and what it did when. A piece of
// work begins when its queue is free, when what the queue waits for has happened, and not before
// the host asked for it; the host's own time moves when it waits.
//
// Thread safety: one caller at a time.
#ifndef EBB_DEVICE_SIM_CLOCK_H_
#define EBB_DEVICE_SIM_CLOCK_H_

#include <array>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>

#include "ebb/device.h"
#include "src/device/device.h"

namespace ebb {

struct TimelineEntry {
  DeviceQueue queue = DeviceQueue::kCompute;
  std::string_view what;
  int layer = -1;
  size_t num_bytes = 0;
  double begin = 0;  // seconds
  double end = 0;
};

class SimClock {
 public:
  explicit SimClock(const DeviceSpec& spec) : spec_(spec) {}

  // Returns when the work ends, so much later than it would for `delay_seconds`.
  double Run(DeviceQueue queue, const DeviceWork& work, double delay_seconds);
  void QueueWait(DeviceQueue queue, double until);
  void HostWait(double until);
  [[nodiscard]] double host() const { return host_; }
  [[nodiscard]] double FreeAt(DeviceQueue queue) const { return free_at_[Index(queue)]; }

  // Keeps the last kMaxEntries pieces of work from now on.
  void KeepTimeline() { keeps_timeline_ = true; }
  [[nodiscard]] const std::deque<TimelineEntry>& timeline() const { return timeline_; }
  static constexpr size_t kMaxEntries = 200'000;

 private:
  static size_t Index(DeviceQueue queue) { return static_cast<size_t>(queue); }
  [[nodiscard]] double SecondsOf(DeviceQueue queue, const DeviceWork& work) const;

  const DeviceSpec spec_;
  std::array<double, kNumDeviceQueues> free_at_ = {};
  double host_ = 0;
  bool keeps_timeline_ = false;
  std::deque<TimelineEntry> timeline_;
};

// As a Chrome trace, which chrome://tracing and Perfetto show: a row per queue.
[[nodiscard]] std::string TraceJson(const std::deque<TimelineEntry>& timeline);

}  // namespace ebb

#endif  // EBB_DEVICE_SIM_CLOCK_H_
