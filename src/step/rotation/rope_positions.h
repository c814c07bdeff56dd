// Which RoPE position each row's key carries. It is the row's position in the sequence until keys
// are re-rotated: then the surviving rows move to consecutive places that end together in every
// group, and the sequence goes on right after them.
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
  // The place of the token at `position` when it is computed next.
  [[nodiscard]] Position Next(Position position) const { return position - offset_; }
  // The place of a row that is in the cache, also of one that is just being removed.
  [[nodiscard]] Position Of(int group, Position position) const;
  // How far each visible row of the group has to turn, [rows], so that all groups end before place
  // `end`: the row with index i of n goes to end - n + i. Follow with MarkRotated(), group by
  // group, and at last with Continue(). REQUIRES: end >= cache.tables().max_rows().
  void Turns(const SequenceCache& cache, int group, Position end,
             std::vector<Position>* turns) const;
  void MarkRotated(const SequenceCache& cache, int group, Position end);
  // All groups were turned; the cache holds the rows of `next` tokens.
  void Continue(Position end, Position next) { offset_ = next - end; }
  // The sequence was rolled back to `end`, rows are gone from the cache.
  void TruncateTo(const SequenceCache& cache, Position end);
  void Save(StateWriter* to) const;
  // For a sequence of `next` tokens.
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
