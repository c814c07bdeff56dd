// Checkpoints are positions of a sequence to which it can be rolled back, although its model has
// recurrent state or sliding windows, whose old contents are lost otherwise.
#ifndef EBB_BASE_CHECKPOINTS_H_
#define EBB_BASE_CHECKPOINTS_H_

#include <cstddef>
#include <span>

#include "ebb/types.h"

namespace ebb {

// Returns the most checkpoints that a sequence keeps: as many as fit into 64 MiB, at least 4 and at
// most 16. `state_bytes` is the size of a copy of the recurrent state, `row_bytes` that of one kv
// head's key and value.
[[nodiscard]] size_t MostCheckpoints(const ModelShape& shape, size_t state_bytes, size_t row_bytes);

// Returns the index of the checkpoint to drop when there are too many. This is never the newest
// one, nor the one at `kept` (0: the first one), such as the end of a system message, which many
// prompts share. The distances of the remaining ones from the newest grow geometrically. REQUIRES:
// at least 3 ascending positions.
[[nodiscard]] size_t CheckpointToDrop(std::span<const Position> positions, Position kept);

}  // namespace ebb

#endif  // EBB_BASE_CHECKPOINTS_H_
