// Attention of several consecutive tokens of one sequence in one layer, split over threads.
//
// Units are (kv head, tile of queries), taken by whichever thread is free; mass, where asked for,
// is a second pass whose units are (kv head, chunk of rows), each summing over all tiles in order.
// So the result does not depend on the number of threads.
#ifndef EBB_ATTENTION_PREFILL_H_
#define EBB_ATTENTION_PREFILL_H_

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "src/attention/attention.h"
#include "src/attention/decode.h"

namespace ebb {

struct PrefillQueries {
  std::span<const RowsView> rows;       // [num_kv_heads], the new tokens' rows included
  std::span<const Position> positions;  // [num_tokens], ascending
  const float* q = nullptr;             // [num_tokens, num_q_heads, head_dim]
  size_t q_token_stride = 0;            // floats from a token's q to the next; 0: no gap
  float* out = nullptr;                 // [num_tokens, num_q_heads, head_dim]
  MassTarget mass;                      // summed over the tokens
};

class PrefillAttention {
 public:
  PrefillAttention(const AttentionKernel& kernel, const AttentionShape& shape);
  PrefillAttention(const PrefillAttention&) = delete;
  PrefillAttention& operator=(const PrefillAttention&) = delete;

  void Reserve(int num_tokens, int num_threads);
  // REQUIRES: room reserved. Called by one thread before Run().
  void Plan(const PrefillQueries& queries);
  void Run(int thread);
  // After Run() of all threads, only where queries.mass has targets.
  void Mass(int thread);

 private:
  [[nodiscard]] PrefillInput Tile(int kv_head, int tile) const;
  void MassUnit(int kv_head, uint32_t begin, std::span<float> scratch);

  const AttentionKernel& kernel_;
  const AttentionShape shape_;
  const int tile_tokens_;
  PrefillQueries queries_;
  int num_tiles_ = 0;
  std::atomic<bool> finite_ = true;  // all outputs so far
  std::atomic<int> next_unit_ = 0;
  std::atomic<int> next_mass_unit_ = 0;
  size_t scratch_floats_ = 0;   // per thread
  std::vector<float> scratch_;  // [threads, scratch_floats]
  std::vector<float> m_, l_;    // [kv heads, tokens, heads per kv]
};

}  // namespace ebb

#endif  // EBB_ATTENTION_PREFILL_H_
