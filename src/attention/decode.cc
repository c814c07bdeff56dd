// Invariants: (1) the arrays hold a state for every unit of the plan; (2) a unit is folded by
// exactly one thread, a query head merged by exactly one. (3) An element of a mass target is
// written by exactly one thread.
#include "src/attention/decode.h"

#include <algorithm>

namespace ebb {
namespace {

// The part of `total` that thread `i` of `n` takes.
size_t Share(size_t total, int i, int n) { return total * i / n; }

std::span<const uint32_t> Selected(const DecodeQuery& query, int kv_head) {
  return query.selected.empty() ? std::span<const uint32_t>() : query.selected[kv_head];
}

}  // namespace

DecodeAttention::DecodeAttention(const AttentionKernel& kernel, const AttentionShape& shape)
    : kernel_(kernel), shape_(shape) {}
DecodeAttention::~DecodeAttention() = default;

void DecodeAttention::Reserve(int num_queries, size_t max_rows) {
  const size_t chunks = (max_rows + kChunkRows - 1) / kChunkRows;
  const size_t queries = num_queries;
  if (chunks <= max_chunks_ && queries <= max_queries_) return;
  // Grown by half at least: a generation asks for one more chunk every 128 tokens.
  max_chunks_ =
      std::max({max_chunks_, chunks, std::min(chunks + chunks / 2 + 4, max_chunks_ * 3 / 2)});
  max_queries_ = std::max(queries, max_queries_);
  const size_t states = max_queries_ * shape_.num_q_heads * max_chunks_;
  m_.resize(states);
  l_.resize(states);
  weights_.resize(states);
  finite_.resize(max_queries_ * shape_.num_q_heads);
  o_.resize(states * shape_.format.head_dim);
  p_.resize(states * kChunkRows);
  first_units_.reserve(max_queries_ * shape_.num_kv_heads);
  planned_rows_.reserve(max_queries_ * shape_.num_kv_heads);
  units_.reserve(max_queries_ * shape_.num_kv_heads * max_chunks_);
  rows_before_.reserve(units_.capacity() + 1);
}

int DecodeAttention::NumChunks(int query, int kv_head) const {
  return static_cast<int>((queries_[query].rows[kv_head].size() + kChunkRows - 1) / kChunkRows);
}

// Layers mostly have the same numbers of rows: then the units stay as they are.
bool DecodeAttention::PlanFits(std::span<const DecodeQuery> queries) const {
  if (planned_rows_.size() != queries.size() * shape_.num_kv_heads) return false;
  size_t i = 0;
  for (const DecodeQuery& query : queries) {
    if (!query.selected.empty()) return false;
    for (const RowsView& rows : query.rows) {
      if (rows.size() != planned_rows_[i++]) return false;
    }
  }
  return true;
}

void DecodeAttention::Plan(std::span<const DecodeQuery> queries) {
  queries_ = queries;
  if (PlanFits(queries)) return;
  units_.clear();
  planned_rows_.clear();
  rows_before_.assign(1, 0);
  first_units_.clear();
  size_t targets_end = 0;
  for (uint32_t query = 0; query < queries.size(); ++query) {
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      const size_t rows = queries[query].rows[h].size();
      first_units_.push_back(units_.size());
      for (uint32_t chunk = 0; chunk * kChunkRows < rows; ++chunk) {
        units_.push_back({query, static_cast<uint16_t>(h), chunk});
        const size_t in_chunk = std::min<size_t>(kChunkRows, rows - chunk * kChunkRows);
        rows_before_.push_back(rows_before_.back() + in_chunk);
      }
      const std::span<const uint32_t> selected = Selected(queries[query], h);
      if (queries[query].selected.empty()) planned_rows_.push_back(rows);
      targets_end = std::max(targets_end, selected.empty() ? rows : selected.back() + size_t{1});
    }
  }
  // A plan that mixes selected rows with all rows fits no other step.
  if (planned_rows_.size() != first_units_.size()) planned_rows_.clear();
  num_mass_blocks_ = (targets_end + kChunkRows - 1) / kChunkRows;
}

// The units of a thread: consecutive ones, with its share of the rows.
std::pair<size_t, size_t> DecodeAttention::UnitsOf(int thread, int num_threads) const {
  const auto first_unit = [&](int i) -> size_t {
    if (i == num_threads) return units_.size();
    const uint64_t rows = Share(rows_before_.back(), i, num_threads);
    return std::ranges::lower_bound(rows_before_, rows) - rows_before_.begin();
  };
  return {first_unit(thread), first_unit(thread + 1)};
}

bool DecodeAttention::FoldsLastChunk(int query, int kv_head, int thread, int num_threads) const {
  const auto [begin, end] = UnitsOf(thread, num_threads);
  const size_t last =
      first_units_[size_t(query) * shape_.num_kv_heads + kv_head] + NumChunks(query, kv_head) - 1;
  return begin <= last && last < end;
}

void DecodeAttention::Fold(int thread, int num_threads) {
  auto [u, end] = UnitsOf(thread, num_threads);
  if (u >= end) return;
  // Weights that nobody reads again stay in one place, in the first-level cache.
  auto p_unit = u;
  const std::byte* keys[2][kChunkRows];
  LocateUnit(units_[u], keys[u % 2]);
  for (; u < end; ++u) {
    const bool keeps_p = !queries_[units_[u].query].mass.per_query_head.empty();
    if (keeps_p || units_[u].query != units_[p_unit].query) p_unit = u;
    if (u + 1 < end) LocateUnit(units_[u + 1], keys[(u + 1) % 2]);
    FoldUnit(units_[u], keys[u % 2], keys[(u + (u + 1 < end)) % 2], p_unit);
  }
}

// Rows of the unit's chunk: [begin, end).
std::pair<uint32_t, uint32_t> DecodeAttention::RowsOf(const Unit& unit) const {
  const size_t rows = queries_[unit.query].rows[unit.kv_head].size();
  const uint32_t begin = unit.chunk * kChunkRows;
  return {begin, static_cast<uint32_t>(std::min<size_t>(begin + kChunkRows, rows))};
}

void DecodeAttention::LocateUnit(const Unit& unit, ChunkKeys keys) const {
  const auto [begin, end] = RowsOf(unit);
  LocateKeys(queries_[unit.query].rows[unit.kv_head], shape_.format, begin, end, keys);
}

void DecodeAttention::FoldUnit(const Unit& unit, ChunkKeys keys, ChunkKeys next_keys,
                               size_t p_unit) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t first_head = size_t{unit.query} * shape_.num_q_heads + unit.kv_head * heads;
  const auto [begin, end] = RowsOf(unit);
  const FoldInput in = {
      .format = shape_.format,
      .keys = keys.data(),
      .num_rows = static_cast<int>(end - begin),
      .next_keys = next_keys.data(),
      .q = queries_[unit.query].q + size_t{unit.kv_head} * heads * shape_.format.head_dim,
      .num_heads = heads,
      .scale = shape_.scale,
  };
  const size_t state = first_head * max_chunks_ + unit.chunk;
  const FoldOutput out = {
      .m = m_.data() + state,
      .l = l_.data() + state,
      .head_stride = max_chunks_,
      .o = o_.data() +
           (first_head * max_chunks_ + size_t{unit.chunk} * heads) * shape_.format.head_dim,
      .p = p_.data() + p_unit * heads * kChunkRows,
      .p_stride = kChunkRows,
  };
  kernel_.fold(in, out);
}

void DecodeAttention::MergeHead(int query, int q_head) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const int kv_head = q_head / heads;
  const size_t head_dim = shape_.format.head_dim;
  const size_t head = size_t(query) * shape_.num_q_heads + q_head;
  const size_t first_head = size_t(query) * shape_.num_q_heads + kv_head * heads;
  const MergeInput in = {
      .m = m_.data() + head * max_chunks_,
      .l = l_.data() + head * max_chunks_,
      .o = o_.data() + (first_head * max_chunks_ + q_head % heads) * head_dim,
      .o_stride = heads * head_dim,
      .num_chunks = NumChunks(query, kv_head),
      .head_dim = shape_.format.head_dim,
  };
  float* weights = weights_.data() + head * max_chunks_;
  kernel_.chunk_weights(in, weights);
  finite_[head] = kernel_.merge(in, weights, queries_[query].out + q_head * head_dim) ? 1 : 0;
}

void DecodeAttention::Merge(int thread, int num_threads) {
  const size_t heads = queries_.size() * shape_.num_q_heads;
  const size_t end = Share(heads, thread + 1, num_threads);
  for (size_t i = Share(heads, thread, num_threads); i < end; ++i) {
    MergeHead(static_cast<int>(i / shape_.num_q_heads), static_cast<int>(i % shape_.num_q_heads));
  }
}

// The first row of a kv head whose mass goes to element `index` of the targets or behind it.
size_t DecodeAttention::RowAtIndex(const DecodeQuery& query, int kv_head, size_t index) {
  const std::span<const uint32_t> selected = Selected(query, kv_head);
  if (selected.empty()) return std::min(index, query.rows[kv_head].size());
  return std::ranges::lower_bound(selected, index) - selected.begin();
}

// A thread owns a range of the targets' elements in all queries and heads: targets that these share
// are written by one thread, in the order of queries and heads, whichever rows each selected.
void DecodeAttention::Mass(int thread, int num_threads) {
  const size_t begin = Share(num_mass_blocks_, thread, num_threads) * kChunkRows;
  const size_t end = Share(num_mass_blocks_, thread + 1, num_threads) * kChunkRows;
  for (size_t query = 0; query < queries_.size(); ++query) {
    const DecodeQuery& of = queries_[query];
    if (of.mass.per_query_head.empty()) continue;
    const uint8_t* finite = finite_.data() + query * shape_.num_q_heads;
    if (std::count(finite, finite + shape_.num_q_heads, 0) > 0) {
      if (thread == 0 && of.mass.not_finite != nullptr) *of.mass.not_finite = true;
      continue;
    }
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      size_t row = RowAtIndex(of, h, begin);
      const size_t last = RowAtIndex(of, h, end);
      while (row < last) {
        const size_t next = std::min(last, (row / kChunkRows + 1) * kChunkRows);
        AddChunkMass(static_cast<int>(query), h, row, next);
        row = next;
      }
    }
  }
}

// Rows [begin, end), which lie in one chunk.
void DecodeAttention::AddChunkMass(int query, int kv_head, size_t begin, size_t end) {
  const DecodeQuery& of = queries_[query];
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t first_head = size_t(query) * shape_.num_q_heads + kv_head * heads;
  const size_t chunk = begin / kChunkRows;
  const int num_rows = static_cast<int>(end - begin);
  const std::span<const uint32_t> selected = Selected(of, kv_head);
  const auto targets = of.mass.per_query_head.subspan(kv_head * heads, heads);
  for (int g = 0; g < heads;) {
    // Neighbours with the same target go in one pass over it.
    constexpr int kMaxHeads = 16;
    float weights[kMaxHeads];
    int n = 0;
    while (n < kMaxHeads && g + n < heads && targets[g + n] == targets[g]) {
      weights[n] = weights_[(first_head + g + n) * max_chunks_ + chunk];
      ++n;
    }
    const size_t unit = first_units_[size_t(query) * shape_.num_kv_heads + kv_head] + chunk;
    const float* p = p_.data() + (unit * heads + g) * kChunkRows + begin % kChunkRows;
    if (selected.empty()) {
      kernel_.add_mass(p, kChunkRows, weights, n, num_rows, targets[g] + begin);
    } else {
      float mass[kChunkRows] = {};
      kernel_.add_mass(p, kChunkRows, weights, n, num_rows, mass);
      for (int r = 0; r < num_rows; ++r) targets[g][selected[begin + r]] += mass[r];
    }
    g += n;
  }
}

}  // namespace ebb
