// DecodeStates is the memory for the states of a layer's chunks, from folding to merging.
// Consecutive layers may share it: the less memory a step writes, the more of it is still in a
// cache.
#ifndef EBB_ATTENTION_DECODE_STATES_H_
#define EBB_ATTENTION_DECODE_STATES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {

struct DecodeStates {
  // Returns the most bytes that a step of `num_queries` queries over `max_rows` rows writes.
  // `keeps_weights`: the rows' weights are kept, to sum up mass.
  [[nodiscard]] static size_t BytesFor(const AttentionShape& shape, size_t num_queries,
                                       size_t max_rows, bool keeps_weights);

  // Reserves memory for steps of `num_queries` queries, each with at most `max_rows` rows of a kv
  // head, full and compressed together.
  void Reserve(const AttentionShape& shape, int num_queries, size_t max_rows, int num_threads);

  size_t max_chunks = 0;
  size_t max_queries = 0;
  int max_threads = 0;
  std::vector<float> m, l;  // [queries, q heads, max_chunks]
  // o is aligned, because a vector that crosses a cache line cannot be read while a store to it is
  // pending.
  hwy::AlignedFreeUniquePtr<float[]> o;  // [queries, kv heads, max_chunks, heads per kv, head_dim]
  hwy::AlignedFreeUniquePtr<float[]> p;  // the same, with kChunkRows instead of head_dim
  std::vector<float> weights;            // [threads, q heads, max_chunks]: of one query
  // rounded has the queries of one group for each thread: [threads, kv heads, queries, heads per
  // kv].
  std::vector<RoundedQuery> rounded;
  // together has FoldedTogether::NumFloats() floats for each thread.
  hwy::AlignedFreeUniquePtr<float[]> together;
};

// FoldedTogether holds the heads of several queries that are folded together as if they were one
// query's.
struct FoldedTogether {
  // kMostHeads is how many heads every kernel can fold in one pass over rows.
  static constexpr int kMostHeads = 6;
  // Returns the most queries that are folded together.
  [[nodiscard]] static int MostQueries(int heads_per_kv_head) {
    return std::max(kMostHeads / heads_per_kv_head, 1);
  }
  [[nodiscard]] static size_t NumFloats(int head_dim) {
    return kMostHeads * (2 * size_t(head_dim) + kChunkRows) + kStates;
  }
  FoldedTogether(float* floats, int head_dim);

  float* q;  // [kMostHeads, head_dim]
  float* o;  // [kMostHeads, head_dim]
  float* p;  // [kMostHeads, kChunkRows]
  float* m;  // [kMostHeads]
  float* l;  // [kMostHeads]

 private:
  static constexpr size_t kStates = 16;  // floats for m and l, rounded up to a cache line
};

}  // namespace ebb

#endif  // EBB_ATTENTION_DECODE_STATES_H_
