// How the steps of an engine use its device: by ebb's own nodes or not, and which way they read T1.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_USE_H_
#define EBB_STEP_DEVICE_DEVICE_USE_H_

#include <span>
#include <string>

#include "ebb/device.h"
#include "src/attention/attention.h"
#include "src/device/backend_device.h"
#include "src/device/device.h"
#include "src/device/step_costs.h"
#include "src/kv/sequence_cache.h"
#include "src/model/loaded_model.h"
#include "src/step/step_work.h"

namespace ebb {

// Whether ebb's own nodes attend to single tokens. T2 lies in the device's memory then.
[[nodiscard]] bool RunsRowAttention(const BackendDevice& device, const LoadedModel& model);

class DeviceUse {
 public:
  struct Options {
    T1Mode t1_mode = T1Mode::kAuto;
    bool allow_inexact = false;
    bool has_t1 = false;     // in the host's memory or in a file
    std::string rates_file;  // see EngineOptions
  };
  DeviceUse() = default;  // the processor: there is no choice
  DeviceUse(BackendDevice* device, const Options& options) : device_(device), options_(options) {}

  [[nodiscard]] BackendDevice* device() const { return device_; }  // null: the processor
  // Whether Choose() goes by rates.
  [[nodiscard]] bool NeedsRates() const {
    return options_.has_t1 && options_.t1_mode == T1Mode::kAuto && options_.allow_inexact;
  }
  // Whether Choose() may say kCompute.
  [[nodiscard]] bool MayCompute() const {
    return options_.has_t1 && (options_.t1_mode == T1Mode::kCompute || NeedsRates());
  }
  void SetRates(const DeviceRates& rates) { rates_ = rates; }
  [[nodiscard]] const std::string& rates_file() const { return options_.rates_file; }
  // kCompute or kStream, for a step of decoding.
  [[nodiscard]] T1Mode Choose(std::span<const SequenceStep> sequences,
                              const AttentionShape& shape) const;

 private:
  BackendDevice* device_ = nullptr;
  Options options_;
  DeviceRates rates_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_USE_H_
