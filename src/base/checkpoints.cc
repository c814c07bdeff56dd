#include "src/base/checkpoints.h"

#include <algorithm>

namespace ebb {

size_t MostCheckpoints(const ModelShape& shape, size_t state_bytes, size_t row_bytes) {
  constexpr size_t kBytes = size_t{64} << 20, kLeast = 4, kMost = 16;
  size_t bytes = state_bytes;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    bytes += static_cast<size_t>(shape.Window(layer)) * shape.NumKvHeads(layer) * row_bytes;
  }
  return std::clamp(kBytes / std::max<size_t>(bytes, 1), kLeast, kMost);
}

size_t CheckpointToDrop(std::span<const Position> positions, Position kept) {
  const Position newest = positions.back();
  if (kept == 0) kept = positions.front();
  size_t drop = 0;
  double smallest = 2;
  for (size_t i = 0; i + 1 < positions.size(); ++i) {
    const Position before = i == 0 ? 0 : positions[i - 1];
    const double relative = double{1} * (positions[i + 1] - before) / (newest - before);
    if (positions[i] == kept || relative >= smallest) continue;
    smallest = relative;
    drop = i;
  }
  return drop;
}

}  // namespace ebb
