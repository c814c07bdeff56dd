#include "src/attention/decode_states.h"

#include <algorithm>
#include <new>
#include <utility>

namespace ebb {

FoldedTogether::FoldedTogether(float* floats, int head_dim)
    : q(floats),
      o(q + kMostHeads * size_t(head_dim)),
      p(o + kMostHeads * size_t(head_dim)),
      m(p + kMostHeads * kChunkRows),
      l(m + kMostHeads) {}

namespace {

// Returns the most chunks of `max_rows` rows. Two may be incomplete: the last full one and the last
// compressed one.
size_t ChunksOf(size_t max_rows) { return (max_rows + kChunkRows - 1) / kChunkRows + 2; }

}  // namespace

size_t DecodeStates::BytesFor(const AttentionShape& shape, size_t num_queries, size_t max_rows,
                              bool keeps_weights) {
  const size_t of_state = 2 + shape.format.head_dim + (keeps_weights ? kChunkRows : 0);
  return num_queries * shape.num_q_heads * ChunksOf(max_rows) * of_state * sizeof(float);
}

void DecodeStates::Reserve(const AttentionShape& shape, int num_queries, size_t max_rows,
                           int num_threads) {
  const size_t chunks = ChunksOf(max_rows);
  const size_t queries = num_queries;
  if (chunks <= max_chunks && queries <= max_queries && num_threads <= max_threads) return;
  // Grow by half at least, since a generation needs one more chunk every 64 tokens.
  const size_t new_chunks =
      std::max({max_chunks, chunks, std::min(chunks + chunks / 2 + 4, max_chunks * 3 / 2)});
  const size_t new_queries = std::max(queries, max_queries);
  const int new_threads = std::max(num_threads, max_threads);
  const size_t states = new_queries * shape.num_q_heads * new_chunks;
  m.resize(states);
  l.resize(states);
  weights.resize(new_threads * shape.num_q_heads * new_chunks);
  if (shape.compressed.head_dim > 0) {
    const int together = FoldedTogether::MostQueries(shape.QueryHeadsPerKvHead());
    const size_t num_rounded = size_t(new_threads) * shape.num_q_heads * together;
    if (rounded.size() < num_rounded) rounded.resize(num_rounded);
  }
  auto new_together =
      hwy::AllocateAligned<float>(new_threads * FoldedTogether::NumFloats(shape.format.head_dim));
  auto new_o = hwy::AllocateAligned<float>(states * shape.format.head_dim);
  auto new_p = hwy::AllocateAligned<float>(states * kChunkRows);
  // Keep the old arrays if there is no memory, since a shorter step may still fit them.
  if (new_o == nullptr || new_p == nullptr || new_together == nullptr) throw std::bad_alloc();
  together = std::move(new_together);
  o = std::move(new_o);
  p = std::move(new_p);
  max_chunks = new_chunks;
  max_queries = new_queries;
  max_threads = new_threads;
}

}  // namespace ebb
