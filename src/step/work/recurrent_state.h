// RecurrentState holds the recurrent state of one sequence: the numbers that layers with linear
// attention, state spaces or short convolutions carry from token to token, in addition to the rows
// of attention layers. Its size does not grow with the text, and it cannot be rolled back, except
// to positions where a copy was kept (a checkpoint).
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_WORK_RECURRENT_STATE_H_
#define EBB_STEP_WORK_RECURRENT_STATE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "hwy/aligned_allocator.h"
#include "src/base/state_slots.h"

namespace ebb {

// Returns the bytes that a step needs to copy the states of its sequences side by side; 0 for one
// sequence, whose state a step uses in place.
[[nodiscard]] inline size_t StateBatchBytes(size_t state_bytes, size_t num_sequences) {
  return num_sequences > 1 ? state_bytes * num_sequences : 0;
}

class RecurrentState {
 public:
  // Makes a state of `bytes` bytes with at most `most` checkpoints. With 0 bytes the model has no
  // such state, and every function but exists() does nothing.
  RecurrentState(size_t bytes, size_t most) : bytes_(bytes), most_(most) {}

  [[nodiscard]] bool exists() const { return bytes_ > 0; }
  // Returns the number of tokens that the state has read; -1: a step failed while it wrote the
  // state.
  [[nodiscard]] Position position() const { return position_; }
  // Returns the bytes that the state takes. Sequences that share a checkpoint count equal parts of
  // it.
  [[nodiscard]] size_t memory_bytes() const;

  // Allocates the state, all zeros, if it has no memory yet, so that BeginStep() cannot fail. May
  // throw std::bad_alloc; the state is then unchanged.
  void Reserve();
  // Returns the memory of the state for a step to read and write; its position is unknown until
  // EndStep(). REQUIRES: Reserve() was called since GoBackTo().
  [[nodiscard]] std::byte* BeginStep();
  void EndStep(Position position) { position_ = position; }

  // Allocates the memory of BeginAhead(). May throw std::bad_alloc; the state is then unchanged.
  void ReserveAhead(size_t num_tokens);
  // Returns memory in which a step keeps the states after each of its `num_tokens` tokens: for each
  // part, at num_tokens times its offset, num_tokens slots. The step reads the first slots, which
  // have a copy of the state, and writes the state after token t to slot num_tokens - 1 - t.
  // REQUIRES: ReserveAhead(num_tokens); `parts` outlive this.
  [[nodiscard]] std::byte* BeginAhead(size_t num_tokens, std::span<const StatePart> parts);
  // Ends the step of BeginAhead() at the state after its first token, which is at `position`.
  void EndAhead(Position position);
  // Goes on to the state after the next token of the step of BeginAhead(). REQUIRES: such a token
  // is left, and nothing else has changed the state since.
  void TakeNext();

  // Makes a checkpoint at position(). It replaces the newest one if `replaces`; if there are too
  // many, the one that CheckpointToDrop() names is dropped. Does nothing if the checkpoint exists
  // or memory is short. Never allocates more than `most` copies, not counting copies that other
  // sequences share.
  void Keep(bool replaces);
  // Protects the checkpoint at this position, once it exists, from being dropped.
  void KeepAlways(Position position) { kept_ = position; }
  // Returns the largest position up to `end` to which GoBackTo() can roll back.
  [[nodiscard]] Position NearestUpTo(Position end) const;
  // Rolls the state back to `end`. REQUIRES: NearestUpTo(end) == end.
  void GoBackTo(Position end);
  // Copies the state that `other` had at `end`, and shares its checkpoints up to there. May throw
  // std::bad_alloc. REQUIRES: other.NearestUpTo(end) == end; both states have the same size.
  void TakeFrom(const RecurrentState& other, Position end);

  void Save(StateWriter* to) const;
  void Load(StateReader* from);

 private:
  using Memory = hwy::AlignedFreeUniquePtr<std::byte[]>;
  struct Checkpoint {
    Position position = 0;
    std::shared_ptr<Memory> bytes;  // read-only while several sequences share it
  };
  [[nodiscard]] static Memory Allocate(size_t bytes);
  // Calls visit(part's bytes in the state, the first of its slots, the part's size).
  template <typename Visitor>
  void ForEachSlots(const Visitor& visit);
  // Copies the state from the slots with this index.
  void TakeSlot(size_t slot);
  // Returns the state at a checkpoint; null: the state before the first token, which is all zeros.
  [[nodiscard]] const std::byte* At(Position position) const;

  const size_t bytes_;
  const size_t most_;
  Memory state_;  // null until a step or a copy needs memory
  Memory slots_;  // of BeginAhead(); null until a step needs them
  size_t max_slots_ = 0;
  size_t num_slots_ = 0;   // of the last step of BeginAhead()
  size_t slots_left_ = 0;  // of them, not yet taken
  std::span<const StatePart> parts_;
  Position position_ = 0;
  Position kept_ = 0;                    // set by KeepAlways(), for CheckpointToDrop()
  std::vector<Checkpoint> checkpoints_;  // in ascending order of position
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_RECURRENT_STATE_H_
