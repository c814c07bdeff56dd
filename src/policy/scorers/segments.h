// Cuts a thought into segments of `tau` consecutive tokens and types them, as ThinKV does. A
// segment of generated tokens is closed when it is full. Its type follows from its mean signal
// (density of attention) among the closed segments so far: the sparsest third is transition, the
// densest third execution, the middle third reasoning [ours: ThinKV calibrates two thresholds
// offline; here the first two segments are reasoning]. Segments of given tokens, and segments of
// generated tokens that a user's turn cuts off, are reasoning; they are closed together with the
// next full segment [ours].
//
// Each position is added once, in order from 0, so that a segment begins where the one before it
// ends. A roll-back to position `end` removes the tokens from there on: it removes the segments
// that begin at `end` or later, and opens the segment that it cuts again, with its old mean signal
// [ours: signals are not stored per token]. Segments closed before `end` stay closed and keep their
// types.
#ifndef EBB_POLICY_SCORERS_SEGMENTS_H_
#define EBB_POLICY_SCORERS_SEGMENTS_H_

#include <cstdint>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

enum class Thought : uint8_t { kReasoning = 0, kExecution, kTransition };

class Segments {
 public:
  explicit Segments(int tau) : tau_(tau) {}

  // Adds a token and returns the index of its segment.
  int Take(StepKind kind);
  // Adds a signal to the mean of the newest token's segment.
  void AddSignal(float density);
  // Types and closes the last segment if it is full, together with all open segments before it.
  // Returns whether it did.
  bool CloseIfFull();
  // Removes the tokens from position `end` on, after a roll-back.
  void TruncateTo(Position end);

  [[nodiscard]] int size() const { return static_cast<int>(all_.size()); }
  [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }
  [[nodiscard]] int num_closed() const { return num_closed_; }
  [[nodiscard]] Thought TypeOf(int segment) const { return all_[segment].type; }
  void Save(StateWriter* to) const;
  [[nodiscard]] Status Load(StateReader* from);

 private:
  struct Segment {
    StepKind kind = StepKind::kPrefill;
    Thought type = Thought::kReasoning;
    int num_tokens = 0;
    float signal_sum = 0;
    int num_signals = 0;

    [[nodiscard]] float Signal() const {
      return num_signals == 0 ? 0.0f : signal_sum / static_cast<float>(num_signals);
    }
  };

  [[nodiscard]] Thought Judge() const;

  const int tau_;
  int num_closed_ = 0;
  int64_t num_tokens_ = 0;  // of all segments
  std::vector<Segment> all_;
};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_SEGMENTS_H_
