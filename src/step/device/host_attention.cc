#include "src/step/device/host_attention.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <numbers>
#include <utility>

#include "ebb/types.h"
#include "hwy/aligned_allocator.h"
#include "src/base/clock.h"
#include "src/base/page_units.h"

namespace ebb {

HostAttention::HostAttention(const AttentionKernel& kernel, const AttentionShape& shape,
                             int threads, OnThreads on_threads)
    : kernel_name_(kernel.name),
      shape_(shape),
      threads_(threads),
      on_threads_(std::move(on_threads)),
      attention_(kernel, shape) {}

void HostAttention::Run(std::span<const DecodeQuery> queries, size_t most_rows) {
  attention_.Reserve(static_cast<int>(queries.size()), most_rows, threads_);
  attention_.Plan(queries);
  on_threads_([&](int part, int num_parts) { attention_.Fold(part, num_parts); });
  on_threads_([&](int part, int num_parts) { attention_.Merge(part, num_parts); });
}

size_t HostAttention::FindRows(int layer, std::span<const Query> queries) {
  rows_.clear();
  compressed_.clear();
  size_t most_rows = 0;
  for (const Query& query : queries) {
    const SequenceCache& cache = *query.sequence->cache;
    const bool reads_t1 = cache.views().ReadsInPlace();
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      rows_.push_back(reads_t1 ? cache.views().RowsIn(Tier::kT1, layer, head).view : RowsView());
      compressed_.push_back(HasCompressedRows(cache) ? cache.views().Compressed(layer, head)
                                                     : CompressedRows());
      most_rows = std::max(most_rows, rows_.back().size() + compressed_.back().size());
    }
  }
  return most_rows;
}

// Points the query at arrays for its mass: first that of the rows of T1, then that of the rows of
// T2.
void HostAttention::MakeMass(size_t index, size_t kv_heads, DecodeQuery* query) {
  MassOfQuery& mass = mass_[index];
  const size_t of_kv_head = shape_.num_q_heads / kv_heads, first = index * kv_heads;
  size_t num = 0;
  for (size_t head = 0; head < kv_heads; ++head) {
    num += (rows_[first + head].size() + compressed_[first + head].size()) * of_kv_head;
  }
  mass.all.assign(num, 0.0f);
  mass.by_head.clear();
  float* next = mass.all.data();
  for (size_t head = 0; head < kv_heads; ++head) {
    for (size_t i = 0; i < of_kv_head; ++i) {
      mass.by_head.push_back(next);
      next += rows_[first + head].size() + compressed_[first + head].size();
    }
  }
  mass.not_finite = false;
  query->mass = {.per_query_head = mass.by_head, .not_finite = &mass.not_finite};
  query->mass_elements = std::span(elements_).subspan(first, kv_heads);
  query->compressed_mass_elements = std::span(compressed_elements_).subspan(first, kv_heads);
}

void HostAttention::Attend(int layer, std::span<const Query> queries) {
  layer_ = layer;
  asked_.assign(queries.begin(), queries.end());
  mass_.resize(std::max(mass_.size(), queries.size()));
  const size_t most_rows = FindRows(layer, queries);
  while (numbers_.size() < most_rows) numbers_.push_back(static_cast<uint32_t>(numbers_.size()));
  const std::span<const uint32_t> numbers = numbers_;
  elements_.clear();
  compressed_elements_.clear();
  for (size_t i = 0; i < rows_.size(); ++i) {
    const size_t num_full = rows_[i].size();
    elements_.push_back(numbers.first(num_full));
    compressed_elements_.push_back(numbers.subspan(num_full, compressed_[i].size()));
  }
  const size_t num_q = shape_.num_q_heads, size = shape_.format.head_dim;
  const size_t kv_heads = rows_.size() / queries.size();
  queries_.clear();
  for (size_t i = 0; i < queries.size(); ++i) {
    DecodeQuery& query = queries_.emplace_back();
    query.rows = std::span(rows_).subspan(i * kv_heads, kv_heads);
    query.compressed = std::span(compressed_).subspan(i * kv_heads, kv_heads);
    query.q = queries[i].q;
    query.out = queries[i].result;
    query.log_sums = queries[i].result + num_q * size;
    if (queries[i].sequence->signals->wants_mass()) MakeMass(i, kv_heads, &query);
  }
  Run(queries_, most_rows);
  for (const Query& query : queries) {
    float* const log_sums = query.result + num_q * size;
    for (size_t head = 0; head < num_q; ++head) log_sums[head] *= std::numbers::log2e_v<float>;
  }
}

void HostAttention::AddMass(size_t index, std::span<const float> weights) {
  const SequenceStep& sequence = *asked_[index].sequence;
  if (!sequence.signals->wants_mass()) return;
  const SequenceCache& cache = *sequence.cache;
  const MassTarget target = sequence.signals->Mass(layer_, 0);
  const MassOfQuery& mass = mass_[index];
  const size_t num_q = shape_.num_q_heads, kv_heads = cache.layout().NumKvHeads(layer_);
  const auto is_number = [](float x) { return std::isfinite(x); };
  if (mass.not_finite || !std::ranges::all_of(weights, is_number)) {
    *target.not_finite = true;
    return;
  }
  for (size_t head = 0; head < num_q; ++head) {
    const auto kv_head = static_cast<int>(head / (num_q / kv_heads));
    const float* from = mass.by_head[head];
    float* const to = target.per_query_head[head];
    const auto add = [&](std::span<const uint32_t> indices) {
      for (const uint32_t row : indices) to[row] += weights[head] * *from++;
    };
    if (cache.views().ReadsInPlace()) add(cache.views().RowsIn(Tier::kT1, layer_, kv_head).indices);
    if (HasCompressedRows(cache)) add(cache.views().IndicesOf(layer_, kv_head).compressed);
  }
}

std::string HostAttention::Description() const {
  return fmt::format("{} kernel, {} threads, {} query heads for {} kv heads of {} channels",
                     kernel_name_, threads_, shape_.num_q_heads, shape_.num_kv_heads,
                     shape_.format.head_dim);
}

Result<double> HostAttention::MeasureBytesPerSecond() {
  // Measures with more bytes than the processor's caches hold, because a step reads each row of T1
  // once.
  const auto cache_bytes = static_cast<size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  const size_t many_bytes = std::clamp(2 * cache_bytes, size_t{64} << 20, size_t{256} << 20);
  const size_t heads = shape_.num_kv_heads, page_bytes = shape_.format.PageBytes();
  const size_t pages_of_head = std::max<size_t>(1, many_bytes / (heads * page_bytes));
  try {
    // Rows of zeros do: the measurement is of reading memory.
    const size_t num_bytes = heads * pages_of_head * page_bytes;
    const auto memory = hwy::AllocateAligned<std::byte>(num_bytes);
    if (memory == nullptr) throw std::bad_alloc();
    std::fill_n(memory.get(), num_bytes, std::byte{0});
    std::vector<const std::byte*> pages;
    for (size_t i = 0; i < heads * pages_of_head; ++i) {
      pages.push_back(memory.get() + i * page_bytes);
    }
    std::vector<Slot> slots;
    for (uint32_t i = 0; i < pages_of_head * kRowsPerPage; ++i) slots.emplace_back(i);
    std::vector<RowsView> rows;
    for (size_t head = 0; head < heads; ++head) {
      rows.push_back({.pages = pages.data() + head * pages_of_head, .slots = slots});
    }
    std::vector<float> q(size_t(shape_.num_q_heads) * shape_.format.head_dim), out(q.size());
    const DecodeQuery query = {.rows = rows, .q = q.data(), .out = out.data()};
    double best = 0;
    constexpr int kRounds = 3;
    for (int round = 0; round < kRounds; ++round) {
      const double begin = SecondsNow();
      Run({&query, 1}, slots.size());
      best = std::max(best, static_cast<double>(num_bytes) / (SecondsNow() - begin));
    }
    return best;
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory for measuring how fast rows are attended to");
  }
}

}  // namespace ebb
