// Invariants: (1) the arrays hold a state for every unit of the plan; (2) a unit is folded by
// exactly one thread, a query head merged by exactly one. (3) An element of a mass target is
// written by exactly one thread.
#include "src/attention/decode.h"

#include <algorithm>
#include <new>

#include "hwy/cache_control.h"

namespace ebb {
namespace {

// Chunks of a kv head that follow one another before those of the next head: memory is read in long
// runs, and the kv heads' parts of a thread still cover the same rows.
constexpr int kBlockChunks = 8;

// The part of `total` that thread `i` of `n` takes.
size_t Share(size_t total, int i, int n) { return total * i / n; }

std::span<const uint32_t> Selected(const DecodeQuery& query, int kv_head) {
  return query.selected.empty() ? std::span<const uint32_t>() : query.selected[kv_head];
}

}  // namespace

DecodeAttention::DecodeAttention(const AttentionKernel& kernel, const AttentionShape& shape)
    : kernel_(kernel), shape_(shape) {}
DecodeAttention::~DecodeAttention() = default;

void DecodeAttention::Reserve(int num_queries, size_t max_rows, int num_threads) {
  const size_t chunks = (max_rows + kChunkRows - 1) / kChunkRows;
  const size_t queries = num_queries;
  if (chunks <= max_chunks_ && queries <= max_queries_ && num_threads <= max_threads_) return;
  // Grown by half at least: a generation asks for one more chunk every 64 tokens.
  const size_t new_chunks =
      std::max({max_chunks_, chunks, std::min(chunks + chunks / 2 + 4, max_chunks_ * 3 / 2)});
  const size_t new_queries = std::max(queries, max_queries_);
  const int new_threads = std::max(num_threads, max_threads_);
  const size_t kv_states = new_queries * shape_.num_kv_heads * new_chunks;
  const size_t states = kv_states * shape_.QueryHeadsPerKvHead();
  m_.resize(states);
  l_.resize(states);
  o_ = hwy::AllocateAligned<float>(states * shape_.format.head_dim);
  p_ = hwy::AllocateAligned<float>(states * kChunkRows);
  if (o_ == nullptr || p_ == nullptr) throw std::bad_alloc();
  weights_.resize(new_threads * shape_.num_q_heads * new_chunks);
  last_units_.reserve(new_queries * shape_.num_kv_heads);
  planned_rows_.reserve(new_queries * shape_.num_kv_heads);
  units_.reserve(kv_states);
  rows_before_.reserve(kv_states + 1);
  max_chunks_ = new_chunks;
  max_queries_ = new_queries;
  max_threads_ = new_threads;
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

void DecodeAttention::PlanUnit(int query, int chunk, int kv_head) {
  const Unit unit = {.query = static_cast<uint32_t>(query),
                     .chunk = static_cast<uint32_t>(chunk),
                     .kv_head = static_cast<uint16_t>(kv_head)};
  const auto [begin, end] = RowsOf(unit);
  last_units_[size_t(query) * shape_.num_kv_heads + kv_head] = units_.size();
  units_.push_back(unit);
  rows_before_.push_back(rows_before_.back() + end - begin);
}

void DecodeAttention::PlanQuery(int query) {
  const DecodeQuery& of = queries_[query];
  const int kv_heads = shape_.num_kv_heads;
  int most_chunks = 0;
  for (int h = 0; h < kv_heads; ++h) most_chunks = std::max(most_chunks, NumChunks(query, h));
  last_units_.resize(last_units_.size() + kv_heads);
  for (int block = 0; block < most_chunks; block += kBlockChunks) {
    for (int h = 0; h < kv_heads; ++h) {
      const int end = std::min(block + kBlockChunks, NumChunks(query, h));
      for (int chunk = block; chunk < end; ++chunk) PlanUnit(query, chunk, h);
    }
  }
  for (int h = 0; h < kv_heads; ++h) {
    const size_t rows = of.rows[h].size();
    const std::span<const uint32_t> selected = Selected(of, h);
    if (of.selected.empty()) planned_rows_.push_back(rows);
    const size_t targets_end = selected.empty() ? rows : selected.back() + size_t{1};
    num_mass_blocks_ = std::max(num_mass_blocks_, (targets_end + kChunkRows - 1) / kChunkRows);
  }
}

void DecodeAttention::Plan(std::span<const DecodeQuery> queries) {
  queries_ = queries;
  if (PlanFits(queries)) return;
  units_.clear();
  planned_rows_.clear();
  last_units_.clear();
  rows_before_.assign(1, 0);
  num_mass_blocks_ = 0;
  for (size_t i = 0; i < queries.size(); ++i) PlanQuery(static_cast<int>(i));
  // A plan that mixes selected rows with all rows fits no other step.
  if (planned_rows_.size() != last_units_.size()) planned_rows_.clear();
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
  const size_t last = last_units_[size_t(query) * shape_.num_kv_heads + kv_head];
  return begin <= last && last < end;
}

float* DecodeAttention::POf(const Unit& unit) {
  const size_t chunk =
      (size_t{unit.query} * shape_.num_kv_heads + unit.kv_head) * max_chunks_ + unit.chunk;
  return p_.get() + chunk * shape_.QueryHeadsPerKvHead() * kChunkRows;
}

// The softmax reads again at once what the key pass writes there.
void DecodeAttention::FetchP(const Unit& unit) {
  const float* p = POf(unit);
  const int floats = shape_.QueryHeadsPerKvHead() * kChunkRows;
  for (int i = 0; i < floats; i += 16) hwy::Prefetch(p + i);
}

void DecodeAttention::Fold(int thread, int num_threads) {
  auto [u, end] = UnitsOf(thread, num_threads);
  if (u >= end) return;
  // Weights that nobody reads again stay in one place, in the first-level cache.
  float* const own = POf(units_[u]);
  const std::byte* keys[2][kChunkRows];
  LocateUnit(units_[u], keys[u % 2]);
  for (; u < end; ++u) {
    const Unit& unit = units_[u];
    const bool keeps_p = !queries_[unit.query].mass.per_query_head.empty();
    if (u + 1 < end) {
      LocateUnit(units_[u + 1], keys[(u + 1) % 2]);
      if (keeps_p) FetchP(units_[u + 1]);
    }
    float* p = keeps_p ? POf(unit) : own;
    FoldUnit(unit, keys[u % 2], keys[(u + (u + 1 < end)) % 2], p);
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
                               float* p) {
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
      .o = o_.get() +
           (first_head * max_chunks_ + size_t{unit.chunk} * heads) * shape_.format.head_dim,
      .p = p,
      .p_stride = kChunkRows,
  };
  kernel_.fold(in, out);
}

MergeInput DecodeAttention::StatesOf(int query, int q_head) const {
  const int heads = shape_.QueryHeadsPerKvHead();
  const int kv_head = q_head / heads;
  const size_t head_dim = shape_.format.head_dim;
  const size_t first_state = size_t(query) * shape_.num_q_heads * max_chunks_;
  const size_t state = first_state + q_head * max_chunks_;
  const size_t first_o = first_state + kv_head * heads * max_chunks_ + q_head % heads;
  return {.m = m_.data() + state,
          .l = l_.data() + state,
          .o = o_.get() + first_o * head_dim,
          .o_stride = heads * head_dim,
          .num_chunks = NumChunks(query, kv_head),
          .head_dim = shape_.format.head_dim};
}

void DecodeAttention::Merge(int thread, int num_threads) {
  const int heads = shape_.num_q_heads;
  float* const weights = weights_.data() + size_t(thread) * heads * max_chunks_;
  const size_t begin = Share(queries_.size() * heads, thread, num_threads);
  const size_t end = Share(queries_.size() * heads, thread + 1, num_threads);
  for (size_t query = 0; query < queries_.size(); ++query) {
    const DecodeQuery& of = queries_[query];
    if (!of.mass.per_query_head.empty()) {
      AddMass(static_cast<int>(query), thread, num_threads, weights);
    }
    for (size_t i = std::max(begin, query * heads); i < std::min(end, (query + 1) * heads); ++i) {
      const int head = static_cast<int>(i % heads);
      const MergeInput in = StatesOf(static_cast<int>(query), head);
      float* weights_of_head = weights + head * max_chunks_;
      if (of.mass.per_query_head.empty()) kernel_.chunk_weights(in, weights_of_head);
      kernel_.merge(in, weights_of_head, of.out + head * shape_.format.head_dim);
    }
  }
}

// The first row of a kv head whose mass goes to element `index` of the targets or behind it.
size_t DecodeAttention::RowAtIndex(const DecodeQuery& query, int kv_head, size_t index) {
  const std::span<const uint32_t> selected = Selected(query, kv_head);
  if (selected.empty()) return std::min(index, query.rows[kv_head].size());
  return std::ranges::lower_bound(selected, index) - selected.begin();
}

// A thread owns a range of the targets' elements in all queries and heads: targets that these share
// are written by one thread, in the order of queries and heads, whichever rows each selected. It
// needs the weights of all heads, and leaves them in `weights`, [q heads, max_chunks].
void DecodeAttention::AddMass(int query, int thread, int num_threads, float* weights) {
  const DecodeQuery& of = queries_[query];
  bool finite = true;
  for (int head = 0; head < shape_.num_q_heads; ++head) {
    finite &= kernel_.chunk_weights(StatesOf(query, head), weights + head * max_chunks_);
  }
  if (!finite) {
    if (thread == 0 && of.mass.not_finite != nullptr) *of.mass.not_finite = true;
    return;
  }
  const size_t begin = Share(num_mass_blocks_, thread, num_threads) * kChunkRows;
  const size_t end = Share(num_mass_blocks_, thread + 1, num_threads) * kChunkRows;
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    size_t row = RowAtIndex(of, h, begin);
    const size_t last = RowAtIndex(of, h, end);
    while (row < last) {
      const size_t next = std::min(last, (row / kChunkRows + 1) * kChunkRows);
      AddChunkMass(query, h, row, next, weights);
      row = next;
    }
  }
}

// Rows [begin, end), which lie in one chunk.
void DecodeAttention::AddChunkMass(int query, int kv_head, size_t begin, size_t end,
                                   const float* weights) {
  const DecodeQuery& of = queries_[query];
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t chunk = begin / kChunkRows;
  const int num_rows = static_cast<int>(end - begin);
  const std::span<const uint32_t> selected = Selected(of, kv_head);
  const auto targets = of.mass.per_query_head.subspan(kv_head * heads, heads);
  const float* p_of_chunk = POf({.query = static_cast<uint32_t>(query),
                                 .chunk = static_cast<uint32_t>(chunk),
                                 .kv_head = static_cast<uint16_t>(kv_head)}) +
                            begin % kChunkRows;
  for (int g = 0; g < heads;) {
    // Neighbours with the same target go in one pass over it.
    constexpr int kMaxHeads = 16;
    float weights_of_heads[kMaxHeads];
    int n = 0;
    while (n < kMaxHeads && g + n < heads && targets[g + n] == targets[g]) {
      weights_of_heads[n] = weights[(kv_head * heads + g + n) * max_chunks_ + chunk];
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
