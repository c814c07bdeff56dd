// Checkpoints: the positions of a text that a sequence can go back to although its model has a
// recurrent state or sliding windows.
#ifndef EBB_BASE_CHECKPOINTS_H_
#define EBB_BASE_CHECKPOINTS_H_

#include <cstddef>
#include <span>

#include "ebb/types.h"

namespace ebb {

// Returns how many checkpoints a sequence keeps at most: as many as fit 64 MiB, but 4 to 16.
// state_bytes: a copy of the recurrent state; row_bytes: a key and a value of one head.
[[nodiscard]] size_t MostCheckpoints(const ModelShape& shape, size_t state_bytes, size_t row_bytes);

// Returns the index of the checkpoint to drop where there are too many: neither the newest nor the
// one at `kept` (0: the first one), such as the end of a system message, behind which many prompts
// part. The distances of the others from the newest grow geometrically. REQUIRES: at least 3
// ascending positions.
[[nodiscard]] size_t CheckpointToDrop(std::span<const Position> positions, Position kept);

}  // namespace ebb

#endif  // EBB_BASE_CHECKPOINTS_H_
