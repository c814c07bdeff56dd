// The cost of a T1 beyond a device for a decode step, in closed form: the choice between the ways
// of reading it rests on that.
#ifndef EBB_DEVICE_STEP_COSTS_H_
#define EBB_DEVICE_STEP_COSTS_H_

#include <cstddef>

#include "ebb/status.h"
#include "src/device/device.h"

namespace ebb {

struct DeviceRates {
  double copy_bytes_per_s = 0;  // to the device
  double latency_seconds = 0;   // of a copy
  double host_bytes_per_s = 0;  // of rows, that the host attends to
};

// The rate of copies from pinned memory is measured, the host's rate of attention is given.
[[nodiscard]] Result<DeviceRates> MeasureRates(Device* device, double host_bytes_per_s);

// The bytes of a layer's rows in T1.
struct T1Bytes {
  size_t rows = 0;
  size_t pages = 0;               // that hold them
  size_t queries_and_states = 0;  // to the host and back, where they are attended to there
};

// The time that T1 adds to a layer, if the pages are copied, and if the host attends to their rows.
// The device's own time is left out, as it is the same in both ways.
[[nodiscard]] double StreamSeconds(const DeviceRates& rates, const T1Bytes& bytes);
[[nodiscard]] double ComputeSeconds(const DeviceRates& rates, const T1Bytes& bytes);

}  // namespace ebb

#endif  // EBB_DEVICE_STEP_COSTS_H_
