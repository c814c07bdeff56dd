// Computes, in closed form, what a T1 beyond a device costs a decode step. Auto mode
// (T1Mode::kAuto) chooses between the ways of reading T1 by these costs.
#ifndef EBB_DEVICE_STEP_COSTS_H_
#define EBB_DEVICE_STEP_COSTS_H_

#include <cstddef>

#include "ebb/status.h"
#include "src/device/device.h"

namespace ebb {

struct DeviceRates {
  double copy_bytes_per_s = 0;  // rate of copies to the device
  double latency_seconds = 0;   // time of a small copy
  double host_bytes_per_s = 0;  // bytes of rows that the host attends to per second
};

// Measures the rate and the latency of copies from pinned memory; the caller supplies the host's
// rate of attention.
[[nodiscard]] Result<DeviceRates> MeasureRates(Device* device, double host_bytes_per_s);

// T1Bytes holds the bytes of a layer's rows in T1.
struct T1Bytes {
  size_t rows = 0;
  size_t pages = 0;               // bytes of the pages that hold the rows
  size_t queries_and_states = 0;  // bytes copied to the host and back if it attends to the rows
};

// StreamSeconds() returns the time that T1 adds to a layer if its pages are copied to the device,
// ComputeSeconds() the time if the host attends to its rows. Both leave out the device's own time,
// which is the same either way.
[[nodiscard]] double StreamSeconds(const DeviceRates& rates, const T1Bytes& bytes);
[[nodiscard]] double ComputeSeconds(const DeviceRates& rates, const T1Bytes& bytes);

}  // namespace ebb

#endif  // EBB_DEVICE_STEP_COSTS_H_
