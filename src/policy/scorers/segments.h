// The segments of a thought, as ThinKV cuts and types it: `tau` tokens in a row make one. A segment
// of generated tokens is closed when it is full, and typed by its mean signal (density of
// attention) among the closed ones so far: the sparsest third is transition, the densest
// execution, the middle reasoning [ours: ThinKV calibrates two thresholds offline; the first two
// are reasoning]. Given tokens, and generated ones that a user's turn cuts off, are reasoning, and
// closed along with the next that is closed [ours].
//
// Tokens are taken one by one, each position from 0 on once, so that a segment begins where those
// before it end. A roll-back takes the newest back: segments that began there or later are gone,
// and one that it cuts is open again, with the mean signal that it had [ours: what its tokens
// showed is not kept apart]. Segments that were closed before it stay closed and keep their types.
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

  // A token more; returns the number of its segment, from 0 on.
  int Take(StepKind kind);
  // Adds the signal of the last token's step.
  void AddSignal(float density);
  // Types and closes the last segment if it is full, and with it all before it.
  bool CloseIfFull();
  // The tokens from position `end` on were taken back.
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
