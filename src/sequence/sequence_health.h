// Whether a sequence can go on:
//
// - kSound: everything is allowed.
// - kRefused: the moves decided after the last step failed. Logits and tokens can
//   be read and the sequence saved; a roll-back makes it sound. A step alone is taken once the caps
//   hold what is decided (for a failed file, at once); in a batch it is taken in any case.
// - kBroken: rows were lost. Logits and tokens can be read, nothing else.
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
  // The kind of the step whose tier moves failed.
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
