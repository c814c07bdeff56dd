// Invariants: (1) the arrays are large enough for a state of every unit of the plan; (2) exactly
// one part folds each unit, and exactly one merges each query head; (3) exactly one part writes
// each element of a mass target.
#include "src/attention/decode.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "hwy/cache_control.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

// kFloatsPerLine is how many floats, or slots, are in a cache line.
constexpr int kFloatsPerLine = 16;

constexpr uint32_t kNoQuery = std::numeric_limits<uint32_t>::max();

}  // namespace

std::span<const uint32_t> DecodeAttention::MassElements(const DecodeQuery& query, int kv_head,
                                                        Kind kind) {
  return OfHead(kind == Kind::kFull ? query.mass_elements : query.compressed_mass_elements,
                kv_head);
}

DecodeAttention::DecodeAttention(const AttentionKernel& kernel, const AttentionShape& shape,
                                 std::shared_ptr<DecodeStates> states)
    : kernel_(kernel),
      shape_(shape),
      most_kv_heads_(shape.num_kv_heads),
      states_(std::move(states)) {}
DecodeAttention::~DecodeAttention() = default;

void DecodeAttention::Reserve(int num_queries, size_t max_rows, int num_parts) {
  AttentionShape widest = shape_;
  widest.num_kv_heads = most_kv_heads_;
  states_->Reserve(widest, num_queries, max_rows, num_parts);
  const size_t kv_states = states_->max_queries * most_kv_heads_ * states_->max_chunks;
  last_units_.reserve(states_->max_queries * most_kv_heads_);
  planned_.reserve(states_->max_queries * most_kv_heads_);
  group_begins_.reserve(states_->max_queries);
  units_.reserve(kv_states);
  rows_before_.reserve(kv_states + 1);
}

size_t DecodeAttention::NumRows(int query, int kv_head, Kind kind) const {
  const DecodeQuery& of = queries_[query];
  return kind == Kind::kFull ? of.rows[kv_head].size() : OfHead(of.compressed, kv_head).size();
}

int DecodeAttention::NumChunks(int query, int kv_head, Kind kind) const {
  return static_cast<int>((NumRows(query, kv_head, kind) + kChunkRows - 1) / kChunkRows);
}

int DecodeAttention::MostTogether() const {
  return FoldedTogether::MostQueries(shape_.QueryHeadsPerKvHead());
}

int DecodeAttention::GroupEnd(int first, int end, int kv_head, Kind kind) const {
  int next = first + 1;
  while (next < end && next - first < MostTogether() && ShareRows(first, next, kv_head, kind)) {
    ++next;
  }
  return next;
}

bool DecodeAttention::ShareRows(int query, int other, int kv_head, Kind kind) const {
  if (query == other) return true;
  if (kind == Kind::kCompressed) {
    const CompressedRows a = OfHead(queries_[query].compressed, kv_head);
    const CompressedRows b = OfHead(queries_[other].compressed, kv_head);
    return a.size() > 0 && a.size() == b.size() && a.slots.data() == b.slots.data() &&
           a.pages == b.pages;
  }
  const auto view = [&](int of) -> const RowsView& { return queries_[of].rows[kv_head]; };
  // An empty list may have any address, so that comparing addresses would mean nothing.
  return !view(query).slots.empty() && view(query).slots.data() == view(other).slots.data() &&
         view(query).pages == view(other).pages &&
         view(query).chosen.ranges.data() == view(other).chosen.ranges.data();
}

size_t DecodeAttention::NumTogether(size_t first, size_t end) const {
  const Unit& unit = units_[first];
  const size_t most = std::min<size_t>(end - first, MostTogether());
  for (size_t n = 1; n < most; ++n) {
    const Unit& other = units_[first + n];
    const bool same = other.kind == unit.kind && other.kv_head == unit.kv_head &&
                      other.chunk == unit.chunk && RowsOf(other) == RowsOf(unit) &&
                      ShareRows(static_cast<int>(unit.query), static_cast<int>(other.query),
                                unit.kv_head, unit.kind);
    if (!same) return n;
  }
  return most;
}

int DecodeAttention::ChunkOf(const Unit& unit) const {
  const auto chunk = static_cast<int>(unit.chunk);
  if (unit.kind == Kind::kFull) return chunk;
  return NumChunks(static_cast<int>(unit.query), unit.kv_head, Kind::kFull) + chunk;
}

float* DecodeAttention::POf(const Unit& unit) {
  const size_t chunk =
      (size_t{unit.query} * shape_.num_kv_heads + unit.kv_head) * states_->max_chunks +
      ChunkOf(unit);
  return states_->p.get() + chunk * shape_.QueryHeadsPerKvHead() * kChunkRows;
}

// Prefetches the memory of a unit's weights: the key pass writes logits there, and the softmax
// reads them right afterwards.
void DecodeAttention::FetchP(const Unit& unit) {
  const float* p = POf(unit);
  const int floats = shape_.QueryHeadsPerKvHead() * kChunkRows;
  for (int i = 0; i < floats; i += kFloatsPerLine) hwy::Prefetch(p + i);
}

// Prefetches the mass targets of a unit's rows, because targets are too large to stay in a cache.
void DecodeAttention::FetchMass(const Unit& unit) const {
  const DecodeQuery& of = queries_[unit.query];
  if (!MassElements(of, unit.kv_head, unit.kind).empty()) return;
  const auto [begin, end] = RowsOf(unit);
  const size_t heads = shape_.QueryHeadsPerKvHead();
  const float* before = nullptr;
  for (const float* target : of.mass.per_query_head.subspan(unit.kv_head * heads, heads)) {
    if (target == before) continue;
    for (uint32_t r = begin; r < end; r += kFloatsPerLine) hwy::Prefetch(target + r);
    before = target;
  }
}

// Prefetches a unit's slots, which come from memory if no other kv head shares the list. Most
// chosen rows of a chunk lie in the range in which the chunk begins.
void DecodeAttention::FetchSlots(const Unit& unit) const {
  const DecodeQuery& of = queries_[unit.query];
  const auto [begin, end] = RowsOf(unit);
  const Slot* slots = nullptr;
  if (unit.kind == Kind::kCompressed) {
    slots = of.compressed[unit.kv_head].slots.data() + begin;
  } else {
    const RowsView& rows = of.rows[unit.kv_head];
    const bool all = rows.chosen.ranges.empty();
    slots = rows.slots.data() + (all ? begin : rows.chosen.chunks[unit.chunk].row);
  }
  for (uint32_t r = 0; r < end - begin; r += kFloatsPerLine) hwy::Prefetch(slots + r);
}

void DecodeAttention::Fold(int part, int num_parts) {
  auto [u, end] = UnitsOf(part, num_parts);
  if (u >= end) return;
  // If weights are not needed later, all units write them to the memory of one, `own`, which stays
  // in the first-level cache.
  float* own = nullptr;
  const std::byte* located[2][kChunkRows];
  ChunkRows rows = located[0], next_rows = located[1];
  uint32_t rounded_group = kNoQuery;
  const size_t floats = FoldedTogether::NumFloats(shape_.format.head_dim);
  const FoldedTogether together(states_->together.get() + part * floats, shape_.format.head_dim);
  LocateUnit(units_[u], rows);
  for (size_t num_units = 0; u < end; u += num_units, std::swap(rows, next_rows)) {
    const Unit& unit = units_[u];
    const bool keeps_p = !queries_[unit.query].mass.per_query_head.empty();
    num_units = NumTogether(u, end);
    const size_t next = u + num_units;
    bool fetches_next = false;
    if (keeps_p) FetchMass(unit);
    if (!keeps_p && own == nullptr) own = POf(unit);
    if (next + 1 < end) FetchSlots(units_[next + 1]);
    if (next < end) {
      LocateUnit(units_[next], next_rows);
      if (keeps_p) FetchP(units_[next]);
      fetches_next = units_[next].kind == unit.kind;
    }
    if (unit.kind == Kind::kCompressed && rounded_group != group_begins_[unit.query]) {
      rounded_group = group_begins_[unit.query];
      RoundGroup(rounded_group, part);
    }
    const ChunkRows fetched = fetches_next ? next_rows : rows;
    if (num_units > 1) {
      FoldTogether(std::span(units_).subspan(u, num_units), rows, fetched, together, part);
    } else {
      FoldRows(unit, rows, fetched,
               queries_[unit.query].q + FirstHead(unit) * shape_.format.head_dim, 1, part,
               OutputOf(unit, keeps_p ? POf(unit) : own));
    }
  }
}

void DecodeAttention::FoldTogether(std::span<const Unit> units, ChunkRows rows, ChunkRows next_rows,
                                   const FoldedTogether& together, int part) {
  const size_t heads = shape_.QueryHeadsPerKvHead();
  const size_t dim = shape_.format.head_dim;
  const Unit& first = units.front();
  if (first.kind == Kind::kFull) {
    const size_t first_q = FirstHead(first) * dim;
    for (size_t i = 0; i < units.size(); ++i) {
      std::copy_n(queries_[units[i].query].q + first_q, heads * dim, together.q + i * heads * dim);
    }
  }
  FoldRows(first, rows, next_rows, together.q, units.size(), part,
           {.m = together.m,
            .l = together.l,
            .head_stride = 1,
            .o = together.o,
            .p = together.p,
            .p_stride = kChunkRows});
  for (size_t i = 0; i < units.size(); ++i) {
    const FoldOutput out = OutputOf(units[i], POf(units[i]));
    for (size_t head = 0; head < heads; ++head) {
      out.m[head * out.head_stride] = together.m[i * heads + head];
      out.l[head * out.head_stride] = together.l[i * heads + head];
    }
    std::copy_n(together.o + i * heads * dim, heads * dim, out.o);
    if (queries_[units[i].query].mass.per_query_head.empty()) continue;
    std::copy_n(together.p + i * heads * kChunkRows, heads * kChunkRows, out.p);
  }
}

RoundedQuery* DecodeAttention::RoundedOf(uint32_t group, uint32_t query, int kv_head, int part) {
  const auto size = std::ranges::upper_bound(group_begins_, group) - group_begins_.begin() - group;
  const size_t of_part = size_t(part) * shape_.num_q_heads * MostTogether();
  const size_t first_query = size_t(kv_head) * size + (query - group);
  return states_->rounded.data() + of_part + first_query * shape_.QueryHeadsPerKvHead();
}

void DecodeAttention::RoundGroup(uint32_t group, int part) {
  const int dim = shape_.format.head_dim;
  const int heads = shape_.QueryHeadsPerKvHead();
  float rotated[kMaxHeadDim];
  for (uint32_t query = group; query < group_begins_.size() && group_begins_[query] == group;
       ++query) {
    const DecodeQuery& of = queries_[query];
    for (int head = 0; head < shape_.num_q_heads; ++head) {
      RoundedQuery* const to = RoundedOf(group, query, head / heads, part) + head % heads;
      std::copy_n(of.q + head * dim, dim, rotated);
      if (IsRotated(shape_.compressed.type)) kernel_.rotate(rotated, dim);
      RoundQuery(shape_.compressed.type, rotated, dim, to);
      const float* centre = OfHead(of.compressed, head / heads).key_centre;
      to->centre_dot = centre == nullptr ? 0 : CentreDot(of.q + head * dim, centre, dim);
    }
  }
}

// Returns the rows of the unit's chunk as [begin, end).
std::pair<uint32_t, uint32_t> DecodeAttention::RowsOf(const Unit& unit) const {
  const size_t rows = NumRows(static_cast<int>(unit.query), unit.kv_head, unit.kind);
  const uint32_t begin = unit.chunk * kChunkRows;
  return {begin, static_cast<uint32_t>(std::min<size_t>(begin + kChunkRows, rows))};
}

void DecodeAttention::LocateUnit(const Unit& unit, ChunkRows rows) const {
  const auto [begin, end] = RowsOf(unit);
  const DecodeQuery& query = queries_[unit.query];
  if (unit.kind != Kind::kCompressed) {
    LocateKeys(query.rows[unit.kv_head], shape_.format, begin, end, rows);
  } else {
    LocateCompressed(query.compressed[unit.kv_head], shape_.compressed, begin, end, rows);
  }
}

// Returns the addresses of a unit's states; its weights are written to `p`.
FoldOutput DecodeAttention::OutputOf(const Unit& unit, float* p) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t first_head = size_t{unit.query} * shape_.num_q_heads + FirstHead(unit);
  const size_t chunk = ChunkOf(unit);
  const size_t state = first_head * states_->max_chunks + chunk;
  const size_t first_o = first_head * states_->max_chunks + chunk * heads;
  return {.m = states_->m.data() + state,
          .l = states_->l.data() + state,
          .head_stride = states_->max_chunks,
          .o = states_->o.get() + first_o * shape_.format.head_dim,
          .p = p,
          .p_stride = kChunkRows};
}

// Folds a unit's rows with the queries q, [num_queries, heads per kv head, head_dim], or if the
// rows are compressed with as many rounded queries of the unit's group, from the unit's on.
void DecodeAttention::FoldRows(const Unit& unit, ChunkRows rows, ChunkRows next_rows,
                               const float* q, size_t num_queries, int part,
                               const FoldOutput& out) {
  const auto num_heads = static_cast<int>(num_queries) * shape_.QueryHeadsPerKvHead();
  const auto [begin, end] = RowsOf(unit);
  const auto num_rows = static_cast<int>(end - begin);
  if (unit.kind == Kind::kFull) {
    kernel_.fold({.format = shape_.format,
                  .keys = rows.data(),
                  .num_rows = num_rows,
                  .next_keys = next_rows.data(),
                  .q = q,
                  .num_heads = num_heads,
                  .scale = shape_.scale,
                  .soft_cap = shape_.soft_cap},
                 out);
  } else {
    kernel_.fold_compressed(
        {.format = shape_.compressed,
         .rows = rows.data(),
         .num_rows = num_rows,
         .next_rows = next_rows.data(),
         .queries = RoundedOf(group_begins_[unit.query], unit.query, unit.kv_head, part),
         .num_heads = num_heads,
         .scale = shape_.scale,
         .soft_cap = shape_.soft_cap},
        out);
  }
}

MergeInput DecodeAttention::StatesOf(int query, int q_head) const {
  const int heads = shape_.QueryHeadsPerKvHead();
  const int kv_head = q_head / heads;
  const size_t head_dim = shape_.format.head_dim;
  const size_t first_state = size_t(query) * shape_.num_q_heads * states_->max_chunks;
  const size_t state = first_state + q_head * states_->max_chunks;
  const float* const sinks = queries_[query].sinks;
  const size_t first_o = first_state + kv_head * heads * states_->max_chunks + q_head % heads;
  return {.m = states_->m.data() + state,
          .l = states_->l.data() + state,
          .o = states_->o.get() + first_o * head_dim,
          .o_stride = heads * head_dim,
          .num_chunks =
              NumChunks(query, kv_head, Kind::kFull) + NumChunks(query, kv_head, Kind::kCompressed),
          .head_dim = shape_.format.head_dim,
          .sink = sinks == nullptr ? kNoSink : sinks[q_head]};
}

void DecodeAttention::Merge(int part, int num_parts) {
  const int heads = shape_.num_q_heads;
  float* const weights = states_->weights.data() + size_t(part) * heads * states_->max_chunks;
  const size_t begin = Share(queries_.size() * heads, part, num_parts);
  const size_t end = Share(queries_.size() * heads, part + 1, num_parts);
  for (size_t query = 0; query < queries_.size(); ++query) {
    const DecodeQuery& of = queries_[query];
    if (!of.mass.per_query_head.empty()) {
      AddMass(static_cast<int>(query), part, num_parts, weights);
    }
    for (size_t i = std::max(begin, query * heads); i < std::min(end, (query + 1) * heads); ++i) {
      const int head = static_cast<int>(i % heads);
      float* weights_of_head = weights + head * states_->max_chunks;
      if (of.mass.per_query_head.empty()) {
        const MergeInput states = StatesOf(static_cast<int>(query), head);
        if (states.num_chunks > 0) kernel_.chunk_weights(states, weights_of_head);
      }
      MergeHead(static_cast<int>(query), head, weights_of_head);
      if (of.log_sums != nullptr) {
        of.log_sums[head] = LogSum(StatesOf(static_cast<int>(query), head));
      }
    }
  }
}

float DecodeAttention::LogSum(const MergeInput& states) {
  if (states.num_chunks == 0) return -std::numeric_limits<float>::infinity();
  const float largest = *std::max_element(states.m, states.m + states.num_chunks);
  double sum = 0;
  for (int chunk = 0; chunk < states.num_chunks; ++chunk) {
    sum += states.l[chunk] * std::exp(double{states.m[chunk]} - largest);
  }
  return static_cast<float>(largest + std::log(sum));
}

// Merges the states of the full-precision chunks, then those of the compressed ones, whose sum it
// rotates back.
void DecodeAttention::MergeHead(int query, int q_head, const float* weights) {
  const int dim = shape_.format.head_dim;
  float* const out = queries_[query].out + q_head * dim;
  const MergeInput all = StatesOf(query, q_head);
  if (all.num_chunks == 0) {
    std::fill_n(out, dim, 0.0f);
    return;
  }
  const int kv_head = q_head / shape_.QueryHeadsPerKvHead();
  const int num_full = NumChunks(query, kv_head, Kind::kFull);
  MergeInput full = all;
  full.num_chunks = num_full;
  kernel_.merge(full, weights, out);
  if (all.num_chunks == num_full) return;
  MergeInput compressed = all;
  compressed.o += num_full * all.o_stride;
  compressed.num_chunks -= num_full;
  float sum[kMaxHeadDim];
  kernel_.merge(compressed, weights + num_full, sum);
  if (IsRotated(shape_.compressed.type)) kernel_.rotate(sum, dim);
  for (int i = 0; i < dim; ++i) out[i] += sum[i];
  const float* const centre = OfHead(queries_[query].compressed, kv_head).key_centre;
  if (shape_.compressed.has_values || centre == nullptr) return;
  float weight = 0;  // sum over the compressed rows
  for (int chunk = num_full; chunk < all.num_chunks; ++chunk)
    weight += weights[chunk] * all.l[chunk];
  for (int i = 0; i < dim; ++i) out[i] += weight * centre[i];
}

}  // namespace ebb
