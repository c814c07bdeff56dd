// One step of one or several sequences, from tokens to logits and what their policies decide
// after it.
//
// Order of a step: check, prepare (append rows, make places), run, settle. What fails before the
// settling leaves tokens, rows and logits as they were; the history of recent queries is dropped
// then, and keys that were rotated to make places stay rotated. A placement that could not be
// carried out, and logits that are not finite, are errors of a step that was taken.
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
#include "src/step/step_work.h"

namespace ebb {

struct StepPlan {
  // Parts of distinct sequences of one engine.
  std::span<const SequenceStep> entries;
  // No logits now: GraphRunner::outputs() hold what they are computed from. For all entries.
  bool deferred_logits = false;
  bool one_token_at_a_time = false;  // see StepWork
};

class StepResult {
 public:
  // Whether the sequences have taken their tokens; then logits are there, whatever status() says.
  [[nodiscard]] bool taken() const { return taken_; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] StepOutcome outcome() const { return {.taken = taken_, .status = status_}; }
  // The entry's own error: of a step that was taken its policy's, or Corrupt if its logits are not
  // finite; else the reason why none was, where that is this entry's.
  [[nodiscard]] Status entry_status(size_t entry) const {
    return entry < entry_status_.size() ? entry_status_[entry] : OkStatus();
  }
  // [vocab_size], of the entry's last token or of each. Valid until the engine's next step.
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

// Takes the step. On an error either no sequence has changed, or each has taken its tokens.
[[nodiscard]] StepResult RunStep(EngineCore* core, const StepPlan& plan);

// An error of a follower, in its name.
[[nodiscard]] Status OfFollower(std::string_view name, const Status& status);

}  // namespace ebb

#endif  // EBB_SEQUENCE_STEP_H_
