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
  [[nodiscard]] Memory Allocate() const;
  // Returns the state at a checkpoint; null: the state before the first token, which is all zeros.
  [[nodiscard]] const std::byte* At(Position position) const;

  const size_t bytes_;
  const size_t most_;
  Memory state_;  // null until a step or a copy needs memory
  Position position_ = 0;
  Position kept_ = 0;                    // set by KeepAlways(), for CheckpointToDrop()
  std::vector<Checkpoint> checkpoints_;  // in ascending order of position
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_RECURRENT_STATE_H_
