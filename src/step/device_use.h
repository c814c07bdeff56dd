// How the steps of an engine use its device: which way they read T1, and what a layer's work is
// announced as.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_USE_H_
#define EBB_STEP_DEVICE_USE_H_

#include <span>
#include <string>

#include "ebb/device.h"
#include "src/attention/attention.h"
#include "src/device/device.h"
#include "src/device/step_costs.h"
#include "src/kv/sequence_cache.h"
#include "src/step/step_work.h"

namespace ebb {

class DeviceUse {
 public:
  struct Options {
    T1Mode t1_mode = T1Mode::kAuto;
    bool allow_inexact = false;
    DeviceRates rates;       // measured; needed for kAuto
    std::string rates_file;  // see EngineOptions
  };
  // One memory: nothing to announce, and no choice.
  DeviceUse() : device_(&CpuDevice()) {}
  DeviceUse(Device* device, const Options& options) : device_(device), options_(options) {}

  [[nodiscard]] Device* device() const { return device_; }
  // Whether Choose() goes by rates.
  [[nodiscard]] bool NeedsRates() const {
    return options_.t1_mode == T1Mode::kAuto && options_.allow_inexact;
  }
  void SetRates(const DeviceRates& rates) { options_.rates = rates; }
  [[nodiscard]] const std::string& rates_file() const { return options_.rates_file; }
  [[nodiscard]] bool one_memory() const { return device_->one_memory(); }
  // kCompute or kStream, for a step of decoding.
  [[nodiscard]] T1Mode Choose(std::span<const SequenceStep> sequences,
                              const AttentionShape& shape) const;
  // What a layer of the sequences reads, all queries of a sequence reading its rows once.
  [[nodiscard]] static LayerBytes BytesOf(std::span<const SequenceStep> sequences,
                                          const AttentionShape& shape, int layer);

  // The rest of a layer, that comes before its attention, with its weights read so often. By thread
  // 0, as the next.
  void LaunchRest(int layer, int num_passes) const;
  // Attention of a layer whose pages are staged or read in place.
  void LaunchAttention(std::span<const SequenceStep> sequences, const AttentionShape& shape,
                       int layer) const;
  // What a step computed is needed by the host.
  Status EndStep() const;

 private:
  Device* device_;
  Options options_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_USE_H_
