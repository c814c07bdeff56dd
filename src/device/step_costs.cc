#include "src/device/step_costs.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "src/device/device_block.h"

namespace ebb {
namespace {

constexpr size_t kFewBytes = size_t{64} << 10;
constexpr size_t kManyBytes = size_t{16} << 20;

struct Line {
  double seconds = 0;  // of nothing
  double bytes_per_s = 0;
};

// Through two measurements.
Line LineThrough(double seconds_of_few, double seconds_of_many) {
  const double seconds_per_byte =
      std::max((seconds_of_many - seconds_of_few) / (kManyBytes - kFewBytes), 1e-15);
  return {.seconds = std::max(seconds_of_few - kFewBytes * seconds_per_byte, 0.0),
          .bytes_per_s = 1 / seconds_per_byte};
}

template <typename Begin>
Result<double> Time(Device* device, const Begin& begin) {
  const double start = device->Seconds();
  EBB_RETURN_IF_ERROR(device->Wait(begin()));
  return device->Seconds() - start;
}

Result<Line> MeasureCopies(Device* device, DeviceQueue queue, const std::byte* from,
                           std::byte* to) {
  const auto copy = [&](size_t num_bytes) {
    return Time(device, [&] {
      const CopyPart part = {.from = from, .to = to, .num_bytes = num_bytes};
      return device->Copy(queue, {.what = "measure", .num_bytes = num_bytes}, {&part, 1});
    });
  };
  EBB_ASSIGN_OR_RETURN(const double few, copy(kFewBytes));
  EBB_ASSIGN_OR_RETURN(const double many, copy(kManyBytes));
  return LineThrough(few, many);
}

Result<Line> MeasureReads(Device* device, DeviceQueue queue) {
  const auto read = [&](size_t num_bytes) {
    return Time(device,
                [&] { return device->Launch(queue, {.what = "measure", .num_bytes = num_bytes}); });
  };
  EBB_ASSIGN_OR_RETURN(const double few, read(kFewBytes));
  EBB_ASSIGN_OR_RETURN(const double many, read(kManyBytes));
  return LineThrough(few, many);
}

}  // namespace

DeviceRates RatesOf(const DeviceSpec& spec) {
  return {.h2d_bytes_per_s = spec.h2d_bytes_per_s,
          .d2h_bytes_per_s = spec.d2h_bytes_per_s,
          .latency_seconds = spec.latency_seconds,
          .device_bytes_per_s = spec.device_bytes_per_s,
          .host_bytes_per_s = spec.host_bytes_per_s,
          .layer_seconds = spec.layer_seconds};
}

Result<DeviceRates> MeasureRates(Device* device) {
  EBB_ASSIGN_OR_RETURN(const DeviceBlock there,
                       DeviceBlock::Allocate(device, MemoryKind::kDevice, kManyBytes));
  EBB_ASSIGN_OR_RETURN(const DeviceBlock here,
                       DeviceBlock::Allocate(device, MemoryKind::kPinned, kManyBytes));
  EBB_ASSIGN_OR_RETURN(const Line up,
                       MeasureCopies(device, DeviceQueue::kToDevice, here.data(), there.data()));
  EBB_ASSIGN_OR_RETURN(const Line down,
                       MeasureCopies(device, DeviceQueue::kToHost, there.data(), here.data()));
  EBB_ASSIGN_OR_RETURN(const Line on_device, MeasureReads(device, DeviceQueue::kCompute));
  EBB_ASSIGN_OR_RETURN(const Line on_host, MeasureReads(device, DeviceQueue::kHost));
  EBB_ASSIGN_OR_RETURN(const double layer, Time(device, [&] {
                         return device->Launch(DeviceQueue::kCompute,
                                               {.what = "measure", .num_layers = 1});
                       }));
  return DeviceRates{.h2d_bytes_per_s = up.bytes_per_s,
                     .d2h_bytes_per_s = down.bytes_per_s,
                     .latency_seconds = std::max(up.seconds, down.seconds),
                     .device_bytes_per_s = on_device.bytes_per_s,
                     .host_bytes_per_s = on_host.bytes_per_s,
                     .layer_seconds = layer};
}

Result<DeviceRates> MeasureRatesOfBackend(Device* device, double host_bytes_per_s) {
  // A copy lies in one extent, which is 2 MiB.
  constexpr int kCopies = 16;
  const size_t num_bytes = kCopies * kDeviceMemoryStep;
  EBB_ASSIGN_OR_RETURN(const DeviceBlock there,
                       DeviceBlock::Allocate(device, MemoryKind::kDevice, num_bytes));
  EBB_ASSIGN_OR_RETURN(const DeviceBlock here,
                       DeviceBlock::Allocate(device, MemoryKind::kPinned, num_bytes));
  const auto copy = [&](int num, size_t of_each) {
    return Time(device, [&] {
      std::vector<CopyPart> parts;
      for (int i = 0; i < num; ++i) {
        const size_t at = i * kDeviceMemoryStep;
        parts.push_back({.from = here.data() + at, .to = there.data() + at, .num_bytes = of_each});
      }
      return device->Copy(DeviceQueue::kToDevice, {.what = "measure"}, parts);
    });
  };
  std::fill_n(here.data(), num_bytes, std::byte{0});
  double few_seconds = std::numeric_limits<double>::max(), many_seconds = few_seconds;
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    EBB_ASSIGN_OR_RETURN(const double few, copy(1, kFewBytes));
    EBB_ASSIGN_OR_RETURN(const double many, copy(kCopies, kDeviceMemoryStep));
    few_seconds = std::min(few_seconds, few);
    many_seconds = std::min(many_seconds, many);
  }
  const double rate = static_cast<double>(num_bytes) / std::max(many_seconds, 1e-9);
  constexpr double kAtOnce = 1e15;
  return DeviceRates{.h2d_bytes_per_s = rate,
                     .d2h_bytes_per_s = rate,
                     .latency_seconds = few_seconds,
                     .device_bytes_per_s = kAtOnce,
                     .host_bytes_per_s = host_bytes_per_s};
}

double StreamSeconds(const DeviceRates& rates, const LayerBytes& bytes, int num_layers) {
  const double copy =
      bytes.t1_pages == 0 ? 0 : rates.latency_seconds + bytes.t1_pages / rates.h2d_bytes_per_s;
  const double compute =
      rates.layer_seconds + (bytes.on_device + bytes.t1_rows) / rates.device_bytes_per_s;
  return num_layers * std::max(copy, compute);
}

double ComputeSeconds(const DeviceRates& rates, const LayerBytes& bytes, int num_layers) {
  const double there = bytes.on_device / rates.device_bytes_per_s;
  const double here = bytes.t1_rows == 0
                          ? 0
                          : 2 * rates.latency_seconds + bytes.queries / rates.d2h_bytes_per_s +
                                bytes.t1_rows / rates.host_bytes_per_s +
                                bytes.states / rates.h2d_bytes_per_s;
  return num_layers * (rates.layer_seconds + std::max(there, here));
}

}  // namespace ebb
