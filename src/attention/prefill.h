// PrefillAttention computes the attention of several consecutive tokens of one sequence in one
// layer, in parts that threads share.
//
// A unit of work is (kv head, tile of queries), which any free part takes. If there are few units,
// as for the few tokens of a verifying step, the rows are cut into slices; how many depends only on
// the number of rows. The thread that ends the last slice of a tile merges the tile's slices in
// order. Mass, if it is wanted, is a second pass with units (kv head, chunk of rows), each of which
// sums over all tiles in order. The result therefore does not depend on the number of parts.
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
  std::span<const RowsView> rows;       // [num_kv_heads], the new tokens' rows included
  std::span<const Position> positions;  // [num_tokens], ascending
  // chunk_first and chunk_tokens describe the prompt's chunk that these tokens are a piece of.
  // Kernels and cuts of attention follow the chunk, so that how the chunk is divided into steps
  // changes no bit. chunk_tokens 0: these tokens are the whole chunk.
  Position chunk_first = 0;
  int chunk_tokens = 0;
  const float* q = nullptr;      // [num_tokens, num_q_heads, head_dim]
  size_t q_token_stride = 0;     // floats from a token's q to the next; 0: no gap
  float* out = nullptr;          // [num_tokens, num_q_heads, head_dim]
  const float* sinks = nullptr;  // [num_q_heads]; null: there are none
  MassTarget mass;               // summed over the tokens
};

// Returns whether a token of a chunk gets the same bits in a chunk of `a` tokens as in one of `b`,
// because its queries and rows are cut the same way. `shape` is that of a layer, `num_old_rows`
// counts the rows before the chunk.
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

  // Reserves memory for layers of `num_kv_heads` kv heads, each of at most `num_rows` rows; never
  // shrinks.
  void Reserve(int num_kv_heads, int num_tokens, size_t num_rows, int num_parts);
  // Plans the queries of a layer. REQUIRES: Reserve() made room for as many kv heads and rows. One
  // thread calls it before Run().
  void Plan(const PrefillQueries& queries);
  void Run(int part);
  // Adds up the mass. REQUIRES: all parts have returned from Run(); queries.mass has targets.
  void Mass(int part);
  // Returns the bytes of the arrays of floats, which are nearly all of the object's memory.
  [[nodiscard]] uint64_t reserved_bytes() const;

 private:
  // Unit is a slice of a tile: rows [begin, end) of a kv head under a tile of queries. A tile's
  // slices are consecutive units.
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
  // Returns the output of a unit's tile; SliceOf() returns that of a slice until it is merged.
  [[nodiscard]] PrefillOutput OutputOf(const Unit& unit);
  [[nodiscard]] PrefillOutput SliceOf(size_t unit);
  // Merges the slices of the tile whose first unit is `first`.
  void MergeSlices(size_t first);
  void MassUnit(int kv_head, uint32_t begin, std::span<float> scratch);

  const AttentionKernel& kernel_;
  AttentionShape shape_;  // of the layer that was planned last
  int tile_tokens_ = 0;   // in it
  PrefillQueries queries_;
  int num_tiles_ = 0;
  std::vector<Unit> units_;
  std::vector<std::atomic<int>> slices_done_;  // [units]: of the tile whose first unit it is
  std::vector<float> slice_o_;            // [units in slices, tile tokens, heads per kv, head_dim]
  std::vector<float> slice_m_, slice_l_;  // [units in slices, tile tokens, heads per kv]
  std::atomic<bool> finite_ = true;       // all outputs so far
  std::atomic<size_t> next_unit_ = 0;
  std::atomic<int> next_mass_unit_ = 0;
  size_t scratch_floats_ = 0;   // per part
  std::vector<float> scratch_;  // [parts, scratch_floats]
  std::vector<float> m_, l_;    // [kv heads, tokens, heads per kv]
};

}  // namespace ebb

#endif  // EBB_ATTENTION_PREFILL_H_
