// Computes, in closed form, how much time a decode step spends on rows of T1 outside the device's
// memory. Auto mode (T1Mode::kAuto) chooses by these times how to read T1.
#ifndef EBB_DEVICE_STEP_COSTS_H_
#define EBB_DEVICE_STEP_COSTS_H_

#include <cstddef>

#include "ebb/status.h"
#include "src/device/device.h"

namespace ebb {

struct DeviceRates {
  double copy_bytes_per_s = 0;  // rate of copies to the device
  double latency_seconds = 0;   // duration of a small copy
  double host_bytes_per_s = 0;  // bytes of rows per second, for the host's attention
};

// Measures the rate and the latency of copies from pinned memory; the caller supplies the host's
// rate of attention.
[[nodiscard]] Result<DeviceRates> MeasureRates(Device* device, double host_bytes_per_s);

// T1Bytes holds how many bytes a layer reads from T1.
struct T1Bytes {
  size_t rows = 0;
  size_t pages = 0;               // the pages that contain the rows
  size_t queries_and_states = 0;  // copied to the host and back if it attends to the rows
};

// Return the seconds that T1 adds to a layer: StreamSeconds() if its pages are copied to the
// device, ComputeSeconds() if the host attends to its rows. The device's own time, which is the
// same either way, is not counted.
[[nodiscard]] double StreamSeconds(const DeviceRates& rates, const T1Bytes& bytes);
[[nodiscard]] double ComputeSeconds(const DeviceRates& rates, const T1Bytes& bytes);

}  // namespace ebb

#endif  // EBB_DEVICE_STEP_COSTS_H_
