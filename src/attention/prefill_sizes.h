// Computes the sizes of tiles and scratch memory in prefill, from the number of floats in a vector.
// Plain C++, for the kernels of every instruction set and for estimates of memory.
#ifndef EBB_ATTENTION_PREFILL_SIZES_H_
#define EBB_ATTENTION_PREFILL_SIZES_H_

#include <cstddef>

#include "src/attention/attention.h"

namespace ebb {

// kMostLanes is the number of floats in the widest vector of any kernel.
inline constexpr int kMostLanes = 16;

// kTileQueries is about how many queries, one for each token and head, a tile has. Each tile
// converts all rows to floats.
inline constexpr int kTileQueries = 96;

// Returns how many query tokens a tile has, a multiple of the lanes of a vector.
constexpr int QueryTileOf(int num_lanes, int num_heads) {
  const int queries = num_lanes * num_heads;
  return (kTileQueries + queries - 1) / queries * num_lanes;
}

// Returns the floats of a tile's scratch memory: transposed queries and results, a chunk's rows,
// its logits, and four numbers for each query.
constexpr size_t PrefillScratchFloatsOf(int num_lanes, int num_heads, int head_dim) {
  const size_t width = size_t(num_heads) * QueryTileOf(num_lanes, num_heads);
  return 2 * size_t(head_dim) * width + size_t(kPrefillChunkRows) * head_dim +
         kPrefillChunkRows * width + 4 * width;
}

}  // namespace ebb

#endif  // EBB_ATTENTION_PREFILL_SIZES_H_
