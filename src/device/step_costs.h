// What a decode step costs on a device, in closed form: the longest way through its layers. The
// choice between the ways of reading T1 rests on it.
#ifndef EBB_DEVICE_STEP_COSTS_H_
#define EBB_DEVICE_STEP_COSTS_H_

#include <cstddef>

#include "ebb/status.h"
#include "src/device/device.h"

namespace ebb {

struct DeviceRates {
  double h2d_bytes_per_s = 0;
  double d2h_bytes_per_s = 0;
  double latency_seconds = 0;
  double device_bytes_per_s = 0;
  double host_bytes_per_s = 0;
  double layer_seconds = 0;
};

// Copies from pinned memory are measured, what the host attends to a second is given. The device's
// own time is left out, as it is the same in both ways.
[[nodiscard]] Result<DeviceRates> MeasureRates(Device* device, double host_bytes_per_s);

// Bytes of each layer of a step.
struct LayerBytes {
  size_t on_device = 0;  // rows of T0
  size_t t1_rows = 0;
  size_t t1_pages = 0;  // that hold them
  size_t queries = 0;   // to the host, where T1 is attended to there
  size_t states = 0;    // and back
};

// T1 is copied, layer by layer, while other layers are computed: whichever takes longer.
[[nodiscard]] double StreamSeconds(const DeviceRates& rates, const LayerBytes& bytes,
                                   int num_layers);
// Each layer: the rest of it, then its attention on the device and, beside it, the way to the host,
// the attention there and the way back.
[[nodiscard]] double ComputeSeconds(const DeviceRates& rates, const LayerBytes& bytes,
                                    int num_layers);

}  // namespace ebb

#endif  // EBB_DEVICE_STEP_COSTS_H_
