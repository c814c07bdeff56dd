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
#include "src/step/step_backend.h"
#include "src/step/step_work.h"

namespace ebb {

class GraphRunner {
 public:
  // Starts the threads, and opens the device of `device` for steps. compressed.head_dim 0: no row
  // is compressed. REQUIRES: the model outlives the runner.
  static Result<std::unique_ptr<GraphRunner>> Create(const Model& model,
                                                     const AttentionKernel& kernel, RowType kv_type,
                                                     const CompressedFormat& compressed,
                                                     const DeviceUse& device, int threads);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Computes a step: stores its rows and fills its signals. Writes where the time went to `costs`
  // unless it is null. Errors: OutOfMemory (compute buffers, staging memory), those of reading T1
  // and of writing earlier moves to its file (IoError), the device's, Internal (ggml failed), and
  // IoError where the model's file changed before the end of the step. May throw std::bad_alloc.
  // After an error rows and signals are unspecified; the caller takes the rows back. REQUIRES:
  // where tokens go one at a time, or logits come later, one sequence.
  Status Run(const StepWork& work, StepCosts* costs);
  // Rotates the keys of a group's visible rows so that they end before place `end`; those from
  // position `next` on have none yet. A failure leaves some of them turned. May throw
  // std::bad_alloc.
  Status RotateKeys(SequenceCache* cache, int group, const RopePositions& rope, Position end,
                    Position next, UnrotatedKeyCache* unrotated_keys);
  // Calls work(part, num_parts) once for each part from 0 to threads() - 1; a thread of the system
  // may make several of these calls. Returns when all are done. REQUIRES: it throws nothing.
  void RunOnThreads(const std::function<void(int part, int num_parts)>& work);
  [[nodiscard]] int threads() const;
  // Returns the backend, for the results and the figures of the last step.
  [[nodiscard]] const StepBackend& steps() const;
  // Returns logits as StepBackend::logits(), also of a step that was computed as several.
  [[nodiscard]] std::span<const float> logits(size_t i) const;
  // Computes logits as StepBackend::ComputeLogits(). Errors: OutOfMemory; IoError if the model's
  // file has changed.
  Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time);

 private:
  struct Impl;
  Status RunParts(const StepWork& work, StepCosts* costs);
  explicit GraphRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_STEP_GRAPH_RUNNER_H_
