// Runs one step of one or several sequences, from tokens to logits and the policies' decisions.
//
// A step checks, prepares (appends rows, finds RoPE positions), runs the graph, and settles. A
// failure before settling leaves tokens, rows and logits as they were, but drops the history of
// recent queries; keys that were re-rotated for the step stay so. If a policy's decision cannot be
// carried out, or logits are not finite, the step itself has been taken and returns that error.
#ifndef EBB_SEQUENCE_STEP_H_
#define EBB_SEQUENCE_STEP_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/sequence/engine_core.h"
#include "src/sequence/sequence.h"
#include "src/step/work/step_work.h"

namespace ebb {

struct StepPlan {
  // Names the parts of the step. REQUIRES: distinct sequences of one engine.
  std::span<const SequenceStep> entries;
  // Declares that no entry's logits are computed now; StepBackend::outputs() then holds the hidden
  // states for computing them later.
  bool deferred_logits = false;
  bool one_token_at_a_time = false;  // see StepWork
};

class StepResult {
 public:
  // Returns whether the sequences have their new tokens. If so, logits are valid even if status()
  // is an error.
  [[nodiscard]] bool taken() const { return taken_; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] StepOutcome outcome() const { return {.taken = taken_, .status = status_}; }
  // Returns the entry's own error. If the step was taken: the error of its policy's decision, or
  // Corrupt if its logits are not finite. If not: the reason why no step was taken, if it is this
  // entry's.
  [[nodiscard]] Status entry_status(size_t entry) const {
    return entry < entry_status_.size() ? entry_status_[entry] : OkStatus();
  }
  // Returns the logits [vocab_size] of the entry's last token, or of each token if all were asked
  // for. Valid until the engine's next step.
  [[nodiscard]] std::span<const float> logits(size_t entry, size_t token = 0) const {
    return runner_->logits(first_output_[entry] + token);
  }

 private:
  friend class StepRun;
  const GraphRunner* runner_ = nullptr;
  bool taken_ = false;
  Status status_;
  std::vector<size_t> first_output_;  // [entries]
  std::vector<Status> entry_status_;  // [entries]
};

// Runs the step. After an error either no sequence has changed or all have taken their tokens; see
// StepResult::taken().
[[nodiscard]] StepResult RunStep(EngineCore* core, const StepPlan& plan);

// Returns a follower's error with the follower's name in its message.
[[nodiscard]] Status OfFollower(std::string_view name, const Status& status);

}  // namespace ebb

#endif  // EBB_SEQUENCE_STEP_H_
