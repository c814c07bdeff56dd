// UnrotatedKeyCache keeps the keys, as they were before RoPE, of rows whose position changes again
// and again: sinks in front of a window move up whenever the window moves on. Each rotation to a
// new position begins at the kept key, so that a key is rounded once, however often it is rotated.
//
// A group of rows for which a policy decides as one (all kv heads, a layer or a kv head) has kept
// keys only while few of its rows change their position. In other groups each rotation begins at
// the rotated key and rounds it again.
#ifndef EBB_STEP_ROTATION_UNROTATED_KEY_CACHE_H_
#define EBB_STEP_ROTATION_UNROTATED_KEY_CACHE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/state.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"
#include "src/step/rotation/rope_positions.h"
#include "src/step/rotation/turning_keys.h"

namespace ebb {

class UnrotatedKeyCache {
 public:
  static constexpr size_t kMostRows = 64;  // of a group

  // Puts back, in `keys`, the original keys of rows that are about to turn, and changes their
  // `turns`, [rows], to begin there; keeps the original keys of the other rows. `rope` has the
  // current places. Rows from position `next` on have no keys yet. May throw std::bad_alloc.
  void PutBack(const SequenceCache& cache, int group, const RopePositions& rope, Position next,
               const TurningKeys& keys, std::span<Position> turns);
  // Forgets rows from position `end` on, after the sequence was rolled back.
  void TruncateTo(Position end);
  [[nodiscard]] size_t memory_bytes() const;
  void Save(StateWriter* to) const;
  // Loads the keys of a sequence of `next` tokens.
  void Load(const SequenceCache& cache, Position next, StateReader* from);

 private:
  struct Row {
    Position position;
    Position place;
    std::vector<std::byte> keys;  // of each stream of the group, layer by layer
  };
  std::vector<std::vector<Row>> rows_;  // by group, ascending; empty: nothing was turned yet
};

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_UNROTATED_KEY_CACHE_H_
