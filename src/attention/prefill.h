// PrefillAttention computes the attention of consecutive tokens of one sequence in one layer.
// Threads share the work.
//
// A unit of work is (kv head, tile of queries); any part that is free takes the next one. If there
// are few units, as for the few tokens of a verifying step, the rows are cut into slices, whose
// number depends only on the number of rows. The thread that completes the last slice of a tile
// merges its slices in order. Mass, if wanted, is a second pass with units (kv head, chunk of
// rows); each unit sums over all tiles in order. The result therefore does not depend on the number
// of parts.
#ifndef EBB_ATTENTION_PREFILL_H_
#define EBB_ATTENTION_PREFILL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/attention/attention.h"
#include "src/attention/decode.h"

namespace ebb {

struct PrefillQueries {
  std::span<const RowsView> rows;       // [num_kv_heads]; includes the rows of the tokens
  std::span<const Position> positions;  // [num_tokens], ascending
  // chunk_first and chunk_tokens describe the chunk of a prompt that contains these tokens;
  // chunk_tokens 0: the tokens are the whole chunk. Kernels and the division of attention depend on
  // the chunk, so that cutting it into steps changes no bit.
  Position chunk_first = 0;
  int chunk_tokens = 0;
  const float* q = nullptr;      // [num_tokens, num_q_heads, head_dim]
  size_t q_token_stride = 0;     // distance of tokens in q, in floats; 0: contiguous
  float* out = nullptr;          // [num_tokens, num_q_heads, head_dim]
  const float* sinks = nullptr;  // [num_q_heads]; null: the model has none
  MassTarget mass;               // summed over the tokens
};

// Returns whether a token gets the same bits in a chunk of `a` tokens as in one of `b`, because
// queries and rows are divided in the same way. `shape` is a layer's; `num_old_rows` is the number
// of rows before the chunk.
[[nodiscard]] bool AreCutAlike(const AttentionKernel& kernel, const AttentionShape& shape,
                               size_t num_old_rows, int a, int b);

// Returns the most bytes that a PrefillAttention reserves, with any kernel, for steps of at most
// `num_tokens` tokens over at most `num_rows` rows of each kv head.
[[nodiscard]] uint64_t MostPrefillBytes(const AttentionShape& shape, int num_tokens,
                                        size_t num_rows, int num_parts);

class PrefillAttention {
 public:
  PrefillAttention(const AttentionKernel& kernel, const AttentionShape& shape);
  PrefillAttention(const PrefillAttention&) = delete;
  PrefillAttention& operator=(const PrefillAttention&) = delete;

  // Reserves memory for layers of `num_kv_heads` kv heads with at most `num_rows` rows each; never
  // frees any.
  void Reserve(int num_kv_heads, int num_tokens, size_t num_rows, int num_parts);
  // Plans the queries of a layer. One thread calls it before Run(). REQUIRES: Reserve() was called
  // for at least as many kv heads and rows.
  void Plan(const PrefillQueries& queries);
  void Run(int part);
  // Adds up the mass. REQUIRES: Run() has returned in all parts; queries.mass has targets.
  void Mass(int part);
  // Returns the bytes of the arrays, which are nearly all of this object's memory.
  [[nodiscard]] uint64_t reserved_bytes() const;

 private:
  // Unit is a slice of a tile: attention of the tile's queries to rows [begin, end) of a kv head.
  // The slices of a tile are consecutive units.
  struct Unit {
    int kv_head = 0;
    int tile = 0;
    int slice = 0;
    int num_slices = 1;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  void SetKvHeads(int num_kv_heads);
  [[nodiscard]] int NumTiles(int num_tokens) const {
    return (num_tokens + tile_tokens_ - 1) / tile_tokens_;
  }
  void PlanTile(int kv_head, int tile, bool in_slices);
  [[nodiscard]] PrefillInput Tile(int kv_head, int tile) const;
  // Return the address of the output of a unit's tile, and the address of the result of a slice
  // until it is merged.
  [[nodiscard]] PrefillOutput OutputOf(const Unit& unit);
  [[nodiscard]] PrefillOutput SliceOf(size_t unit);
  // Merges the slices of the tile whose first unit is `first`.
  void MergeSlices(size_t first);
  void MassUnit(int kv_head, uint32_t begin, std::span<float> scratch);

  const AttentionKernel& kernel_;
  AttentionShape shape_;  // shape of the layer planned last
  int tile_tokens_ = 0;   // tokens of a tile in that layer
  PrefillQueries queries_;
  int num_tiles_ = 0;
  std::vector<Unit> units_;
  std::vector<std::atomic<int>> slices_done_;  // [units]: of the tile that begins with it
  std::vector<float> slice_o_;            // [units in slices, tile tokens, heads per kv, head_dim]
  std::vector<float> slice_m_, slice_l_;  // [units in slices, tile tokens, heads per kv]
  std::atomic<bool> finite_ = true;       // false once an output is not finite
  std::atomic<size_t> next_unit_ = 0;
  std::atomic<int> next_mass_unit_ = 0;
  size_t scratch_floats_ = 0;   // scratch memory of each part
  std::vector<float> scratch_;  // [parts, scratch_floats]
  std::vector<float> m_, l_;    // [kv heads, tokens, heads per kv]
};

}  // namespace ebb

#endif  // EBB_ATTENTION_PREFILL_H_
