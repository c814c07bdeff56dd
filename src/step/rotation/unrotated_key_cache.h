// Keys as they were stored first, of rows that turn again and again: sinks in front of a window
// move up whenever it moves on. Each turn begins at the first key, so that a key is rounded once,
// however often it turns.
//
// Only where few rows turn: where most do, each turn rounds them anew.
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

  // For rows that are about to turn, [rows], from where `rope` has them: those whose first keys are
  // here get them back, in `keys`, and turn from there; others are taken note of. The keys of rows
  // from position `next` on are not there yet. May throw std::bad_alloc.
  void PutBack(const SequenceCache& cache, int group, const RopePositions& rope, Position next,
               const TurningKeys& keys, std::span<Position> turns);
  // The sequence was rolled back to `end`.
  void TruncateTo(Position end);
  [[nodiscard]] size_t memory_bytes() const;
  void Save(StateWriter* to) const;
  // For a sequence of `next` tokens.
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
