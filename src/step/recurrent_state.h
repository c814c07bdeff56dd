// The recurrent state of one sequence: what layers with linear attention, state spaces or short
// convolutions carry from token to token, in addition to the rows of attention layers. Its size
// does not grow with the text, and it cannot be rolled back, except to positions where a copy was
// kept (a checkpoint).
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_RECURRENT_STATE_H_
#define EBB_STEP_RECURRENT_STATE_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "hwy/aligned_allocator.h"

namespace ebb {

// Returns the bytes in which a step lays the states of its sequences side by side; that of a single
// one is used where it lies.
[[nodiscard]] inline size_t StateBatchBytes(size_t state_bytes, size_t num_sequences) {
  return num_sequences > 1 ? state_bytes * num_sequences : 0;
}

class RecurrentState {
 public:
  // 0 bytes: the model has no such state, and every function but exists() does nothing. `most`:
  // checkpoints that are kept at once.
  RecurrentState(size_t bytes, size_t most) : bytes_(bytes), most_(most) {}

  [[nodiscard]] bool exists() const { return bytes_ > 0; }
  // The tokens that the state has read; -1: a step failed while it was being written.
  [[nodiscard]] Position position() const { return position_; }
  // Counts a checkpoint that sequences share in equal parts.
  [[nodiscard]] size_t memory_bytes() const;

  // Makes room for a step. May throw std::bad_alloc, and has changed nothing then.
  void Reserve();
  // Returns the memory of the state for a step to read and write; its position is unknown until
  // EndStep(). REQUIRES: Reserve() was called since GoBackTo().
  [[nodiscard]] std::byte* BeginStep();
  void EndStep(Position position) { position_ = position; }

  // Keeps a copy at position(), in the place of the newest one if `replaces`; CheckpointToDrop()
  // goes if there are too many. Changes nothing if there is one already, or no memory. Never takes
  // memory for more than `most` copies, except for those that other sequences share.
  void Keep(bool replaces);
  // The copy at this position, once it is there, is not dropped for others.
  void KeepAlways(Position position) { kept_ = position; }
  // The largest position up to `end` that GoBackTo() takes.
  [[nodiscard]] Position NearestUpTo(Position end) const;
  // REQUIRES: NearestUpTo(end) == end.
  void GoBackTo(Position end);
  // Becomes the state that `other` has at `end`, and shares its checkpoints up to there. May throw
  // std::bad_alloc.
  // REQUIRES: other.NearestUpTo(end) == end; as many bytes.
  void TakeFrom(const RecurrentState& other, Position end);

  void Save(StateWriter* to) const;
  void Load(StateReader* from);

 private:
  using Memory = hwy::AlignedFreeUniquePtr<std::byte[]>;
  struct Checkpoint {
    Position position = 0;
    std::shared_ptr<Memory> bytes;  // not written while several sequences share it
  };
  [[nodiscard]] Memory Allocate() const;
  // Null: the state is all zeros, of no token.
  [[nodiscard]] const std::byte* At(Position position) const;

  const size_t bytes_;
  const size_t most_;
  Memory state_;  // null until a step or a copy needs it
  Position position_ = 0;
  Position kept_ = 0;                    // CheckpointToDrop()'s
  std::vector<Checkpoint> checkpoints_;  // ascending
};

}  // namespace ebb

#endif  // EBB_STEP_RECURRENT_STATE_H_
