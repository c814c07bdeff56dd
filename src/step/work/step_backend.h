// StepBackend computes the steps of an engine: CpuStep on the processor, DeviceStep on a device.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_WORK_STEP_BACKEND_H_
#define EBB_STEP_WORK_STEP_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ebb/device.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "src/step/work/step_work.h"

namespace ebb {

class StepBackend {
 public:
  virtual ~StepBackend() = default;
  StepBackend(const StepBackend&) = delete;
  StepBackend& operator=(const StepBackend&) = delete;

  // Computes a step as GraphRunner::Run() does. REQUIRES: if the model has recurrent state, all
  // sequences have the same number of tokens, in their order.
  virtual Status Run(const StepWork& work, StepCosts* costs) = 0;
  // Returns the logits, [vocab_size], of output_rows[i] of the last step, or of token i of the last
  // ComputeLogits() if that was later. Valid until the next Run() or ComputeLogits().
  [[nodiscard]] virtual std::span<const float> logits(size_t i) const = 0;
  // Returns the last step's data that ComputeLogits() needs, [output_rows, OutputFloats()]. Valid
  // until the next Run() or ComputeLogits(). REQUIRES: the step had StepWork::deferred_logits.
  [[nodiscard]] virtual std::span<const float> outputs() const = 0;
  [[nodiscard]] virtual size_t OutputFloats() const = 0;
  // Computes the logits of tokens whose rows of outputs() the caller has copied to `outputs`.
  virtual Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) = 0;
  // Computes the rows that a head reads from the features of tokens. Valid until the next Run() or
  // EncodeFeatures(). REQUIRES: the model is a head that reads features.
  virtual Result<std::span<const float>> EncodeFeatures(std::span<const float> /*features*/) {
    return Unsupported("a device runs no heads");
  }
  // Returns whether a sequence that has rows in T2 may have only one token in a step.
  [[nodiscard]] virtual bool ReadsT2TokenByToken() const { return false; }
  // Returns the number of graphs built so far. A step with the shape of a recent one builds none.
  [[nodiscard]] virtual int64_t num_graphs_built() const = 0;
  // Returns how the last step read T1 on a device.
  [[nodiscard]] virtual T1Mode t1_mode() const { return T1Mode::kStream; }
  // Returns the seconds that the last step took to select rows.
  [[nodiscard]] virtual double select_seconds() const = 0;
  // Returns the bytes of the weights in the memory of a device that computes; 0: the processor
  // computes.
  [[nodiscard]] virtual size_t weight_bytes_on_device() const { return 0; }

 protected:
  StepBackend() = default;
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_STEP_BACKEND_H_
