// GraphRunner runs the steps of an engine by its StepBackend, and lends ggml's threads to other
// work of the engine.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_GRAPH_RUNNER_H_
#define EBB_STEP_GRAPH_RUNNER_H_

#include <functional>
#include <memory>
#include <span>

#include "ebb/model.h"
#include "ebb/report.h"
#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/step/device/device_use.h"
#include "src/step/rotation/rope_positions.h"
#include "src/step/rotation/unrotated_key_cache.h"
#include "src/step/work/step_backend.h"
#include "src/step/work/step_work.h"

namespace ebb {

class GraphRunner {
 public:
  // Starts the threads, and opens the device that `device` names for steps. If compressed.head_dim
  // is 0, there is no T2. REQUIRES: the model outlives the runner.
  static Result<std::unique_ptr<GraphRunner>> Create(const Model& model,
                                                     const AttentionKernel& kernel, RowType kv_type,
                                                     const CompressedFormat& compressed,
                                                     const DeviceUse& device, int threads);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Computes a step: stores its rows and fills its signals. Writes the seconds of each phase to
  // `costs` unless it is null. Errors: OutOfMemory (compute buffers, staging memory), IoError
  // (reading T1, writing earlier moves to its file, or the model's file changed before the end of
  // the step), the device's, Internal (ggml failed). May throw std::bad_alloc. After an error rows
  // and signals are unspecified; the caller removes the step's rows. REQUIRES: if
  // one_token_at_a_time or deferred_logits is set, the step has one sequence.
  Status Run(const StepWork& work, StepCosts* costs);
  // Re-rotates the keys of a group's visible rows so that their RoPE positions end before `end`.
  // Rows from position `next` on have no keys yet. After an error some keys are rotated and some
  // are not. May throw std::bad_alloc.
  Status RotateKeys(SequenceCache* cache, int group, const RopePositions& rope, Position end,
                    Position next, UnrotatedKeyCache* unrotated_keys);
  // Calls work(part, num_parts) once for each part from 0 to threads() - 1; one thread may run
  // several parts. Returns when all calls have returned. REQUIRES: `work` throws nothing.
  void RunOnThreads(const std::function<void(int part, int num_parts)>& work);
  [[nodiscard]] int threads() const;
  // Returns the backend, which has the results and the statistics of the last step.
  [[nodiscard]] const StepBackend& steps() const;
  // Returns logits as StepBackend::logits(), also if the step was divided into several.
  [[nodiscard]] std::span<const float> logits(size_t i) const;
  // Computes logits as StepBackend::ComputeLogits(). Errors: OutOfMemory; IoError if the model's
  // file has changed.
  Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time);
  // Computes rows as StepBackend::EncodeFeatures(). Errors: those of ComputeLogits().
  Result<std::span<const float>> EncodeFeatures(std::span<const float> features);

 private:
  struct Impl;
  Status RunParts(const StepWork& work, StepCosts* costs);
  explicit GraphRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_STEP_GRAPH_RUNNER_H_
