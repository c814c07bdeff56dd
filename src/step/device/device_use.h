// DeviceUse describes how the steps of an engine use its device: whether by ebb's own nodes, and
// how they may read T1.
#ifndef EBB_STEP_DEVICE_DEVICE_USE_H_
#define EBB_STEP_DEVICE_DEVICE_USE_H_

#include <string>

#include "ebb/device.h"
#include "src/device/backend_device.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

// Returns whether ebb's own nodes attend for single tokens. T2 then lies in the device's memory.
[[nodiscard]] bool RunsRowAttention(const BackendDevice& device, const LoadedModel& model);

// DeviceUse names the device that computes an engine's steps, and the ways in which it may read T1.
struct DeviceUse {
  BackendDevice* device = nullptr;  // null: the processor computes
  T1Mode t1_mode = T1Mode::kAuto;
  bool allow_inexact = false;
  bool has_t1 = false;     // T1 exists, in the host's memory or in a file
  std::string rates_file;  // see EngineOptions::rates_file

  // Returns whether measured rates decide, step by step, how T1 is read.
  [[nodiscard]] bool NeedsRates() const {
    return has_t1 && t1_mode == T1Mode::kAuto && allow_inexact;
  }
  // Returns whether the host may attend to rows of T1.
  [[nodiscard]] bool MayCompute() const {
    return has_t1 && (t1_mode == T1Mode::kCompute || NeedsRates());
  }
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_USE_H_
