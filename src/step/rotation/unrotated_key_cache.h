// UnrotatedKeyCache keeps keys as they were before RoPE, of rows whose RoPE position changes often:
// attention sinks in front of a window move up whenever the window does. Each rotation to a new
// position begins at the kept key, so that a key is rounded once in any number of rotations.
//
// It keeps the keys of a group only while few of the group's rows change their position. In other
// groups each rotation begins at the rotated key and rounds it again.
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
  static constexpr size_t kMostRows = 64;  // rows of a group with kept keys

  // Replaces, in `keys`, the keys of rows that are about to be rotated by the stored ones, and
  // changes `turns`, [rows], to rotate from there. Stores the keys of rows that are rotated for the
  // first time. `rope` has the current RoPE positions. Rows from position `next` on have no keys
  // yet. May throw std::bad_alloc.
  void PutBack(const SequenceCache& cache, int group, const RopePositions& rope, Position next,
               const TurningKeys& keys, std::span<Position> turns);
  // Forgets keys from position `end` on, after the sequence was rolled back.
  void TruncateTo(Position end);
  [[nodiscard]] size_t memory_bytes() const;
  void Save(StateWriter* to) const;
  // Loads the saved keys of a sequence that has `next` tokens.
  void Load(const SequenceCache& cache, Position next, StateReader* from);

 private:
  struct Row {
    Position position;
    Position place;
    std::vector<std::byte> keys;  // one key for each stream of the group, by layer
  };
  std::vector<std::vector<Row>> rows_;  // by group, ascending; empty: no key was rotated yet
};

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_UNROTATED_KEY_CACHE_H_
