// Computes the sizes that a prefill kernel chooses by the floats of its vectors. Plain C++, shared
// by the kernels of every instruction set and by estimates of memory.
#ifndef EBB_ATTENTION_PREFILL_SIZES_H_
#define EBB_ATTENTION_PREFILL_SIZES_H_

#include <cstddef>

#include "src/attention/attention.h"

namespace ebb {

// kMostLanes is the number of floats of the widest vector of any kernel.
inline constexpr int kMostLanes = 16;

// Returns the query tokens of a tile: about three vectors of queries or more, so that few heads
// take more tokens.
constexpr int QueryTileOf(int num_lanes, int num_heads) {
  return (num_heads >= 3 ? 1 : num_heads == 2 ? 2 : 3) * num_lanes;
}

// Counts the floats of a tile's transposed queries and results, a chunk's rows, its logits, and
// four numbers of each query.
constexpr size_t PrefillScratchFloatsOf(int num_lanes, int num_heads, int head_dim) {
  const size_t width = size_t(num_heads) * QueryTileOf(num_lanes, num_heads);
  return 2 * size_t(head_dim) * width + size_t(kPrefillChunkRows) * head_dim +
         kPrefillChunkRows * width + 4 * width;
}

}  // namespace ebb

#endif  // EBB_ATTENTION_PREFILL_SIZES_H_
