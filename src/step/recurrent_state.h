// The recurrent state of one sequence: what layers with linear attention, state spaces or short
// convolutions carry from token to token, in addition to the rows of attention layers. Its size
// does not grow with the text, and it cannot be rolled back, except to positions where a copy was
// kept (a checkpoint).
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_RECURRENT_STATE_H_
#define EBB_STEP_RECURRENT_STATE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "hwy/aligned_allocator.h"
#include "src/base/step_sizes.h"

namespace ebb {

class RecurrentState {
 public:
  // Checkpoints that are kept at once: the ends of the last prompts.
  static constexpr size_t kMaxCheckpoints = kStateCheckpoints;

  // 0 bytes: the model has no such state, and every function but exists() does nothing.
  explicit RecurrentState(size_t bytes) : bytes_(bytes) {}

  [[nodiscard]] bool exists() const { return bytes_ > 0; }
  // The tokens that the state has read; -1: a step failed while it was being written.
  [[nodiscard]] Position position() const { return position_; }
  [[nodiscard]] size_t memory_bytes() const;

  // Makes room for a step. May throw std::bad_alloc, and has changed nothing then.
  void Reserve();
  // Returns the memory of the state for a step to read and write; its position is unknown until
  // EndStep(). REQUIRES: Reserve() was called since GoBackTo().
  [[nodiscard]] std::byte* BeginStep();
  void EndStep(Position position) { position_ = position; }

  // Keeps a copy at position(), in the place of the newest one where `replaces`, else of the
  // oldest. Keeps none where there is no memory.
  void Keep(bool replaces);
  // The largest position up to `end` that GoBackTo() takes.
  [[nodiscard]] Position NearestUpTo(Position end) const;
  // REQUIRES: NearestUpTo(end) == end.
  void GoBackTo(Position end);
  // Becomes the state that `other` has at `end`, without its checkpoints. May throw std::bad_alloc.
  // REQUIRES: other.NearestUpTo(end) == end; as many bytes.
  void TakeFrom(const RecurrentState& other, Position end);

  void Save(StateWriter* to) const;
  void Load(StateReader* from);

 private:
  using Memory = hwy::AlignedFreeUniquePtr<std::byte[]>;
  struct Checkpoint {
    Position position = 0;
    Memory bytes;
  };
  [[nodiscard]] Memory Allocate() const;
  // Null: the state is all zeros, of no token.
  [[nodiscard]] const std::byte* At(Position position) const;

  const size_t bytes_;
  Memory state_;  // null until a step or a copy needs it
  Position position_ = 0;
  std::vector<Checkpoint> checkpoints_;  // ascending
};

}  // namespace ebb

#endif  // EBB_STEP_RECURRENT_STATE_H_
