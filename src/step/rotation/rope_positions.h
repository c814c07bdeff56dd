// RopePositions stores the RoPE position (called place here) of each row's key. It is the row's
// position in the sequence until keys are re-rotated: then the remaining rows get consecutive
// places, which end at the same place in every group, and the sequence continues right after them.
//
// This follows StreamingLLM (section 3.2 there), which numbers positions within the cache.
// Attention sees only differences of places. Hence rows may close up to the newest ones, so that
// few keys are rotated; they are numbered from 0 when the context is full. Keys are stored rotated,
// so that each re-rotation rounds a key again.
#ifndef EBB_STEP_ROTATION_ROPE_POSITIONS_H_
#define EBB_STEP_ROTATION_ROPE_POSITIONS_H_

#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class RopePositions {
 public:
  // Returns the place of the next token, which will be at `position`.
  [[nodiscard]] Position Next(Position position) const { return position - offset_; }
  // Returns the place of a row that is in the cache or is being removed.
  [[nodiscard]] Position Of(int group, Position position) const;
  // Writes to `turns`, [rows], by how many places the key of each visible row of the group must be
  // rotated so that the group ends before place `end`: row i of n goes to place end - n + i. After
  // the caller has rotated a group's keys, it calls MarkRotated(); after all groups, Continue().
  // REQUIRES: end >= cache.tables().max_rows().
  void Turns(const SequenceCache& cache, int group, Position end,
             std::vector<Position>* turns) const;
  void MarkRotated(const SequenceCache& cache, int group, Position end);
  // Places the next token at `end`, after all groups were rotated. The cache holds the rows of
  // `next` tokens.
  void Continue(Position end, Position next) { offset_ = next - end; }
  // Forgets the places of rows from position `end` on, after a roll-back has removed them from the
  // cache.
  void TruncateTo(const SequenceCache& cache, Position end);
  void Save(StateWriter* to) const;
  // Loads the saved places of a sequence that has `next` tokens.
  void Load(int num_groups, Position next, StateReader* from);

 private:
  struct Placed {
    Position position;
    Position place;
  };
  Position offset_ = 0;
  std::vector<std::vector<Placed>> placed_;  // [groups], ascending; empty: none was rotated
};

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_ROPE_POSITIONS_H_
