#include "src/device/sim_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace ebb {
namespace {

constexpr std::array<std::string_view, kNumDeviceQueues> kQueueNames = {
    "copies to the device", "copies to the host", "device", "host"};

}  // namespace

double SimClock::SecondsOf(DeviceQueue queue, const DeviceWork& work) const {
  const auto bytes = static_cast<double>(work.num_bytes);
  switch (queue) {
    case DeviceQueue::kToDevice:
      return spec_.latency_seconds + bytes / spec_.h2d_bytes_per_s;
    case DeviceQueue::kToHost:
      return spec_.latency_seconds + bytes / spec_.d2h_bytes_per_s;
    case DeviceQueue::kCompute:
      return work.num_layers * spec_.layer_seconds + bytes / spec_.device_bytes_per_s;
    case DeviceQueue::kHost:
      return bytes / spec_.host_bytes_per_s;
  }
  return 0;
}

double SimClock::Run(DeviceQueue queue, const DeviceWork& work, double delay_seconds) {
  double& free_at = free_at_[Index(queue)];
  const double begin = std::max(free_at, host_);
  free_at = begin + SecondsOf(queue, work) + delay_seconds;
  if (keeps_timeline_) {
    if (timeline_.size() == kMaxEntries) timeline_.pop_front();
    timeline_.push_back({.queue = queue,
                         .what = work.what,
                         .layer = work.layer,
                         .num_bytes = work.num_bytes,
                         .begin = begin,
                         .end = free_at});
  }
  return free_at;
}

void SimClock::QueueWait(DeviceQueue queue, double until) {
  double& free_at = free_at_[Index(queue)];
  free_at = std::max(free_at, until);
}

void SimClock::HostWait(double until) { host_ = std::max(host_, until); }

std::string TraceJson(const std::deque<TimelineEntry>& timeline) {
  constexpr double kMicroseconds = 1e6;
  std::string json = "{\"traceEvents\":[\n";
  for (size_t queue = 0; queue < kQueueNames.size(); ++queue) {
    fmt::format_to(std::back_inserter(json),
                   "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{},"
                   "\"args\":{{\"name\":\"{}\"}}}}",
                   queue, kQueueNames[queue]);
    json += queue + 1 < kQueueNames.size() || !timeline.empty() ? ",\n" : "\n";
  }
  for (size_t i = 0; i < timeline.size(); ++i) {
    const TimelineEntry& entry = timeline[i];
    fmt::format_to(std::back_inserter(json),
                   "{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.4f},"
                   "\"dur\":{:.4f},\"args\":{{\"layer\":{},\"bytes\":{}}}}}{}\n",
                   entry.what, static_cast<int>(entry.queue), entry.begin * kMicroseconds,
                   (entry.end - entry.begin) * kMicroseconds, entry.layer, entry.num_bytes,
                   i + 1 < timeline.size() ? "," : "");
  }
  return json + "],\"displayTimeUnit\":\"ns\"}\n";
}

}  // namespace ebb
