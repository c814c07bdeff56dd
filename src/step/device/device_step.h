// DeviceStep computes steps on a device, by a backend of ggml: weights and rows lie in the device's
// memory, and a step is one graph there. The host uploads lists of the rows that the step reads and
// writes, and downloads logits and signals.
//
// A step's result has the same bits for any slots of its rows and in every repetition, but not the
// same bits as on the processor.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_STEP_H_
#define EBB_STEP_DEVICE_DEVICE_STEP_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/report.h"
#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/step/device/device_graphs.h"
#include "src/step/device/device_inputs.h"
#include "src/step/device/device_signals.h"
#include "src/step/device/device_t1.h"
#include "src/step/device/device_use.h"
#include "src/step/device/host_attention.h"
#include "src/step/work/staged_sequences.h"
#include "src/step/work/step_backend.h"
#include "src/step/work/step_work.h"

namespace ebb {

class DeviceStep final : public StepBackend {
 public:
  using OnThreads = HostAttention::OnThreads;
  // Copies the weights to the device, checks that the device has all operations, and measures how
  // fast it reads T1 in each way. `host_attention` attends to rows of T1 and T2 on the host.
  // Errors: those of DeviceWeights and DeviceT1::FindOrMeasureRates(); Unsupported, naming the
  // operation, if the backend lacks one that the model or the tiers need. REQUIRES: model and
  // device outlive this; use.device is not null.
  static Result<std::unique_ptr<DeviceStep>> Create(const LoadedModel& model, const DeviceUse& use,
                                                    const AttentionShape& shape,
                                                    std::unique_ptr<HostAttention> host_attention,
                                                    const OnThreads& on_threads);

  ~DeviceStep() override;

  // Computes a step. Errors: OutOfMemory if the device has no memory for it; Internal if it was
  // lost.
  Status Run(const StepWork& work, StepCosts* costs) override;
  [[nodiscard]] std::span<const float> logits(size_t i) const override;
  // Returns the logits of all outputs: a device's step computes them at once, so that
  // ComputeLogits() has nothing left to compute.
  [[nodiscard]] std::span<const float> outputs() const override { return logits_; }
  [[nodiscard]] size_t OutputFloats() const override { return model_.hparams.vocab_size; }
  Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) override;
  [[nodiscard]] bool ReadsT2TokenByToken() const override { return !graphs_.HoldsT2(); }
  [[nodiscard]] int64_t num_graphs_built() const override { return graphs_.num_built(); }
  [[nodiscard]] T1Mode t1_mode() const override { return t1_.mode(); }
  [[nodiscard]] double select_seconds() const override { return t1_.select_seconds(); }
  [[nodiscard]] size_t weight_bytes_on_device() const override { return graphs_.weight_bytes(); }

 private:
  DeviceStep(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
             std::unique_ptr<HostAttention> host_attention, const OnThreads& on_threads);
  // Builds graphs of a prompt's step, of a single token and, if the host may attend too, of a token
  // with the host's part, to check their operations, and drops them again.
  Status CheckOperations();
  Status RunOnDevice(const StepWork& work, StagedSequences* staged, StepCosts* costs);
  Status ComputeStep(const StepWork& work, const StagedSequences& staged, StepCosts* costs);
  // Returns whether the model has recurrent states, which the functions below copy to the device
  // and back. A step of such a model REQUIRES: all sequences have the same number of tokens, in
  // order.
  [[nodiscard]] bool HasStates() const { return model_.hparams.state_bytes > 0; }
  void ReserveStates(const StepWork& work);
  Status SetStates(const StepWork& work, DeviceGraph* graph);
  static void TakeStates(const StepWork& work, DeviceGraph* graph);

  const LoadedModel& model_;
  BackendDevice* const device_;
  const bool has_t2_;
  DeviceGraphs graphs_;
  DeviceInputs inputs_;
  DeviceT1 t1_;
  DeviceSignals signals_;
  std::vector<StagedStep> staged_steps_;                            // memory of StagedSequences
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> state_buffer_;  // recurrent states of a step
  std::vector<std::byte*> states_;                                  // the same states on the host
  std::vector<float> logits_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_STEP_H_
