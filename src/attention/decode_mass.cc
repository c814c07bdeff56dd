// Adds up mass for DecodeAttention. Invariant (3) of decode.cc: each element of a mass target is
// written in exactly one part.
#include <algorithm>

#include "src/attention/decode.h"

namespace ebb {

// Adds the mass of this part's range of target elements, over all queries and heads. A target that
// queries and heads share is therefore written by one part, in the order of queries and heads, even
// if queries select different rows. The part needs the weights of all heads, and leaves them in
// `weights`, [q heads, max_chunks].
void DecodeAttention::AddMass(int query, int part, int num_parts, float* weights) {
  const DecodeQuery& of = queries_[query];
  bool finite = true;
  for (int head = 0; head < shape_.num_q_heads; ++head) {
    const MergeInput states = StatesOf(query, head);
    if (states.num_chunks == 0) continue;
    finite &= kernel_.chunk_weights(states, weights + head * states_->max_chunks);
  }
  if (!finite) {
    if (part == 0 && of.mass.not_finite != nullptr) *of.mass.not_finite = true;
    return;
  }
  const size_t begin = Share(num_mass_blocks_, part, num_parts) * kChunkRows;
  const size_t end = Share(num_mass_blocks_, part + 1, num_parts) * kChunkRows;
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    AddMassOfRows(query, h, Kind::kFull, {begin, end}, weights);
    AddMassOfRows(query, h, Kind::kCompressed, {begin, end}, weights);
  }
}

// Adds the mass of a kv head's rows of one kind to the arrays of the query's MassTarget: only to
// their elements from elements.first up to, but not including, elements.second.
void DecodeAttention::AddMassOfRows(int query, int kv_head, Kind kind,
                                    std::pair<size_t, size_t> elements, const float* weights) {
  const DecodeQuery& of = queries_[query];
  const std::span<const uint32_t> mass_elements = MassElements(of, kv_head, kind);
  const size_t num_rows = NumRows(query, kv_head, kind);
  const auto row_at = [&](size_t element) -> size_t {
    if (mass_elements.empty()) return std::min(element, num_rows);
    return std::ranges::lower_bound(mass_elements, element) - mass_elements.begin();
  };
  const size_t begin = row_at(elements.first);
  const size_t end = row_at(elements.second);
  if (begin >= end) return;
  const size_t heads = shape_.QueryHeadsPerKvHead();
  const auto targets = of.mass.per_query_head.subspan(kv_head * heads, heads);
  const Unit first = {.query = static_cast<uint32_t>(query),
                      .chunk = 0,
                      .kv_head = static_cast<uint16_t>(kv_head),
                      .kind = kind};
  const float* first_weights = weights + kv_head * heads * states_->max_chunks + ChunkOf(first);
  // Add the mass of adjacent heads with the same target in one pass.
  for (size_t head = 0, next = 0; head < heads; head = next) {
    while (next < heads && targets[next] == targets[head]) ++next;
    const MassInput rows = {.p = POf(first) + head * kChunkRows,
                            .p_chunk_stride = heads * kChunkRows,
                            .p_stride = kChunkRows,
                            .weights = first_weights + head * states_->max_chunks,
                            .weights_stride = states_->max_chunks,
                            .num_heads = static_cast<int>(next - head),
                            .begin = begin,
                            .end = end};
    if (mass_elements.empty()) {
      kernel_.add_mass(rows, targets[head]);
    } else {
      AddMassByElement(rows, mass_elements, targets[head]);
    }
  }
}

// Adds mass chunk by chunk. The mass of row r is added to element mass_elements[r] of `target`.
void DecodeAttention::AddMassByElement(MassInput rows, std::span<const uint32_t> mass_elements,
                                       float* target) const {
  const size_t end = rows.end;
  for (size_t row = rows.begin; row < end; row = rows.end) {
    const size_t chunk = row / kChunkRows;
    const size_t first = chunk * kChunkRows;
    MassInput of_chunk = rows;
    of_chunk.p += chunk * rows.p_chunk_stride;
    of_chunk.weights += chunk;
    of_chunk.begin = row - first;
    of_chunk.end = std::min<size_t>(end - first, kChunkRows);
    float mass[kChunkRows] = {};
    kernel_.add_mass(of_chunk, mass);
    rows.end = first + of_chunk.end;
    for (size_t r = row; r < rows.end; ++r) target[mass_elements[r]] += mass[r - first];
  }
}

}  // namespace ebb
