// RopePositions knows the RoPE position, or place, of each row's key. It is the row's position in
// the sequence until keys are re-rotated: then the surviving rows move to consecutive places that
// end together in every group, and the sequence continues right after them.
//
// After StreamingLLM (section 3.2 there), which numbers positions within the cache. Attention sees
// only differences, so rows may close up to the newest ones, where few rows turn; from 0 on they
// are numbered when the context is full. A key, which is stored rotated, is rounded once per turn.
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
  // Returns the place of the token at `position`, which is computed next.
  [[nodiscard]] Position Next(Position position) const { return position - offset_; }
  // Returns the place of a row that is in the cache, or that is just being removed.
  [[nodiscard]] Position Of(int group, Position position) const;
  // Writes to `turns`, [rows], how far the key of each visible row of the group has to turn so that
  // all groups end before place `end`: row i of n goes to place end - n + i. After each group's
  // keys were rotated, call MarkRotated(); after all groups, Continue(). REQUIRES: end >=
  // cache.tables().max_rows().
  void Turns(const SequenceCache& cache, int group, Position end,
             std::vector<Position>* turns) const;
  void MarkRotated(const SequenceCache& cache, int group, Position end);
  // Continues the sequence at place `end`, after all groups were rotated. The cache holds the rows
  // of `next` tokens.
  void Continue(Position end, Position next) { offset_ = next - end; }
  // Forgets rows from position `end` on, after the sequence was rolled back and the cache has
  // dropped them.
  void TruncateTo(const SequenceCache& cache, Position end);
  void Save(StateWriter* to) const;
  // Loads the places of a sequence of `next` tokens.
  void Load(int num_groups, Position next, StateReader* from);

 private:
  struct Placed {
    Position position;
    Position place;
  };
  Position offset_ = 0;
  std::vector<std::vector<Placed>> placed_;  // by group, ascending; empty: nothing was turned yet
};

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_ROPE_POSITIONS_H_
