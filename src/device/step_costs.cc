#include "src/device/step_costs.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "src/base/clock.h"
#include "src/device/device_block.h"

namespace ebb {
namespace {

constexpr size_t kFewBytes = size_t{64} << 10;

}  // namespace

Result<DeviceRates> MeasureRates(Device* device, double host_bytes_per_s) {
  // A copy must lie within one extent, which is 2 MiB.
  constexpr int kCopies = 16;
  const size_t num_bytes = kCopies * kDeviceMemoryStep;
  EBB_ASSIGN_OR_RETURN(const DeviceBlock there,
                       DeviceBlock::Allocate(device, MemoryKind::kDevice, num_bytes));
  EBB_ASSIGN_OR_RETURN(const DeviceBlock here,
                       DeviceBlock::Allocate(device, MemoryKind::kPinned, num_bytes));
  const auto copy = [&](int num, size_t of_each) -> Result<double> {
    std::vector<CopyPart> parts;
    for (int i = 0; i < num; ++i) {
      const size_t at = i * kDeviceMemoryStep;
      parts.push_back({.from = here.data() + at, .to = there.data() + at, .num_bytes = of_each});
    }
    const double start = SecondsNow();
    const Status status = device->Wait(device->Copy(parts));
    return status.ok() ? Result<double>(SecondsNow() - start) : status;
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
  return DeviceRates{.copy_bytes_per_s = rate,
                     .latency_seconds = few_seconds,
                     .host_bytes_per_s = host_bytes_per_s};
}

double StreamSeconds(const DeviceRates& rates, const T1Bytes& bytes) {
  return bytes.pages == 0 ? 0 : rates.latency_seconds + bytes.pages / rates.copy_bytes_per_s;
}

double ComputeSeconds(const DeviceRates& rates, const T1Bytes& bytes) {
  if (bytes.rows == 0) return 0;
  return 2 * rates.latency_seconds + bytes.queries_and_states / rates.copy_bytes_per_s +
         bytes.rows / rates.host_bytes_per_s;
}

}  // namespace ebb
