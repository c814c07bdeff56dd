// How DecodeAttention adds up mass. Invariant (3) of decode.cc: an element of a mass target is
// written by exactly one thread.
#include <algorithm>

#include "src/attention/decode.h"

namespace ebb {

// A thread owns a range of the targets' elements in all queries and heads: targets that these share
// are written by one thread, in the order of queries and heads, whichever rows each selected. It
// needs the weights of all heads, and leaves them in `weights`, [q heads, max_chunks].
void DecodeAttention::AddMass(int query, int thread, int num_threads, float* weights) {
  const DecodeQuery& of = queries_[query];
  bool finite = true;
  for (int head = 0; head < shape_.num_q_heads; ++head) {
    finite &= kernel_.chunk_weights(StatesOf(query, head), weights + head * states_->max_chunks);
  }
  if (!finite) {
    if (thread == 0 && of.mass.not_finite != nullptr) *of.mass.not_finite = true;
    return;
  }
  const size_t begin = Share(num_mass_blocks_, thread, num_threads) * kChunkRows;
  const size_t end = Share(num_mass_blocks_, thread + 1, num_threads) * kChunkRows;
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    AddMassOfRows(query, h, Kind::kFull, {begin, end}, weights);
    AddMassOfRows(query, h, Kind::kHost, {begin, end}, weights);
    AddMassOfRows(query, h, Kind::kCompressed, {begin, end}, weights);
  }
}

// Of the rows of a kv head whose mass goes to the elements [first, second) of the targets.
void DecodeAttention::AddMassOfRows(int query, int kv_head, Kind kind,
                                    std::pair<size_t, size_t> elements, const float* weights) {
  const std::span<const uint32_t> selected = Selected(queries_[query], kv_head, kind);
  const size_t num_rows = NumRows(query, kv_head, kind);
  const auto row_at = [&](size_t element) -> size_t {
    if (selected.empty()) return std::min(element, num_rows);
    return std::ranges::lower_bound(selected, element) - selected.begin();
  };
  size_t row = row_at(elements.first);
  const size_t last = row_at(elements.second);
  while (row < last) {
    const size_t chunk = row / kChunkRows;
    const size_t next = std::min(last, (chunk + 1) * kChunkRows);
    AddChunkMass({.query = static_cast<uint32_t>(query),
                  .chunk = static_cast<uint32_t>(chunk),
                  .kv_head = static_cast<uint16_t>(kv_head),
                  .kind = kind},
                 row, next, weights);
    row = next;
  }
}

// Rows [begin, end) of the unit's kind, which lie in its chunk.
void DecodeAttention::AddChunkMass(const Unit& unit, size_t begin, size_t end,
                                   const float* weights) {
  const DecodeQuery& of = queries_[unit.query];
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t first_head = size_t{unit.kv_head} * heads;
  const int num_rows = static_cast<int>(end - begin);
  const std::span<const uint32_t> selected = Selected(of, unit.kv_head, unit.kind);
  const auto targets = of.mass.per_query_head.subspan(first_head, heads);
  const float* p_of_chunk = POf(unit) + begin % kChunkRows;
  const float* weights_of_chunk = weights + first_head * states_->max_chunks + ChunkOf(unit);
  for (int g = 0; g < heads;) {
    // Neighbours with the same target go in one pass over it.
    constexpr int kMaxHeads = 16;
    float weights_of_heads[kMaxHeads];
    int n = 0;
    while (n < kMaxHeads && g + n < heads && targets[g + n] == targets[g]) {
      weights_of_heads[n] = weights_of_chunk[(g + n) * states_->max_chunks];
      ++n;
    }
    const float* p = p_of_chunk + g * kChunkRows;
    if (selected.empty()) {
      kernel_.add_mass(p, kChunkRows, weights_of_heads, n, num_rows, targets[g] + begin);
    } else {
      float mass[kChunkRows] = {};
      kernel_.add_mass(p, kChunkRows, weights_of_heads, n, num_rows, mass);
      for (int r = 0; r < num_rows; ++r) targets[g][selected[begin + r]] += mass[r];
    }
    g += n;
  }
}

}  // namespace ebb
