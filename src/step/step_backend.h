// StepBackend computes the steps of an engine: CpuStep on the processor, DeviceStep on a device.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_STEP_BACKEND_H_
#define EBB_STEP_STEP_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ebb/device.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "src/step/step_work.h"

namespace ebb {

class StepBackend {
 public:
  virtual ~StepBackend() = default;
  StepBackend(const StepBackend&) = delete;
  StepBackend& operator=(const StepBackend&) = delete;

  // Computes a step as GraphRunner::Run() does. REQUIRES: all sequences of a model with recurrent
  // state have as many tokens, in their order.
  virtual Status Run(const StepWork& work, StepCosts* costs) = 0;
  // Returns logits, [vocab_size], of output_rows[i] of the last step, or of token i of the last
  // ComputeLogits() if that was later. Valid until the next call of Run() or ComputeLogits().
  [[nodiscard]] virtual std::span<const float> logits(size_t i) const = 0;
  // Returns what ComputeLogits() needs of the last step: [output_rows, OutputFloats()]. Valid as
  // logits(). REQUIRES: StepWork::deferred_logits of that step.
  [[nodiscard]] virtual std::span<const float> outputs() const = 0;
  [[nodiscard]] virtual size_t OutputFloats() const = 0;
  // Computes the logits of the tokens of `outputs`, a copy of some rows of outputs().
  virtual Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) = 0;
  // Returns whether a step has one token at most of a sequence that has rows in T2.
  [[nodiscard]] virtual bool ReadsT2TokenByToken() const { return false; }
  // Counts the graphs built so far. Steps whose shape is among the last ones' build none.
  [[nodiscard]] virtual int64_t num_graphs_built() const = 0;
  // Returns how the last step read T1, on a device.
  [[nodiscard]] virtual T1Mode t1_mode() const { return T1Mode::kStream; }
  // Returns how long the last step took to select rows.
  [[nodiscard]] virtual double select_seconds() const = 0;
  // Returns the bytes of the weights on a device that computes by itself; 0: there is none.
  [[nodiscard]] virtual size_t weight_bytes_on_device() const { return 0; }

 protected:
  StepBackend() = default;
};

}  // namespace ebb

#endif  // EBB_STEP_STEP_BACKEND_H_
