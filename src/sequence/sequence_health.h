// Whether a sequence can go on. What is allowed:
//
// | state    | read logits, tokens | roll back, save              | take a step |
// |----------|---------------------|------------------------------|-----------------------------------|
// | kSound   | yes                 | yes                          | yes | | kRefused | yes | yes;
// fewer tokens: kSound    | where the caps no longer refuse   | | kBroken  | yes                 |
// no                           | no                                |
#ifndef EBB_SEQUENCE_SEQUENCE_HEALTH_H_
#define EBB_SEQUENCE_SEQUENCE_HEALTH_H_

#include <optional>
#include <utility>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

class SequenceHealth {
 public:
  enum class State { kSound, kRefused, kBroken };

  [[nodiscard]] State state() const {
    if (!broken_.ok()) return State::kBroken;
    return refused_.has_value() ? State::kRefused : State::kSound;
  }
  // Why the state is kBroken; OK in the other two.
  [[nodiscard]] const Status& CheckUnbroken() const { return broken_; }
  // The kind of the step whose placement could not be carried out.
  [[nodiscard]] std::optional<StepKind> refused() const { return refused_; }

  void Refuse(StepKind kind) { refused_ = kind; }
  void EndRefusal() { refused_.reset(); }
  // For good, unless `why` is OK, which changes nothing.
  void Break(Status why) {
    if (!why.ok()) broken_ = std::move(why);
  }

 private:
  Status broken_;
  std::optional<StepKind> refused_;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_HEALTH_H_
