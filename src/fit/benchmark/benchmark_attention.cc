// Measures the speed of attention in decode steps. Invariants: (1) between two barriers a thread
// runs one phase of one layer; (2) only thread 0 plans attention and takes times.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ebb/benchmark.h"
#include "src/attention/attention.h"
#include "src/attention/decode.h"
#include "src/fit/benchmark/benchmark_memory.h"
#include "src/fit/benchmark/benchmark_team.h"
#include "src/kv/sequence_cache.h"
#include "src/rows/arena.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLimitBytes = size_t{256} << 20;

Status CheckOptions(const AttentionBenchmarkOptions& o, const AttentionShape& shape) {
  EBB_RETURN_IF_ERROR(CheckAttentionShape(shape));
  constexpr int kMaxThreads = 1024;
  constexpr int kMaxRows = 1 << 24;
  if (o.shape.num_layers < 1 || o.rows < 1 || o.rows > kMaxRows || !(o.keep > 0 && o.keep <= 1) ||
      o.threads < 0 || o.threads > kMaxThreads || o.repetitions < 1 || o.steps < 1) {
    return InvalidArgument(fmt::format(
        "the attention benchmark needs layers, 1 to {} rows of which a share above 0 and up to 1 "
        "is kept, up to {} threads, repetitions and steps; found {} layers, {} rows, {} kept, {} "
        "threads, {} repetitions, {} steps",
        kMaxRows, kMaxThreads, o.shape.num_layers, o.rows, o.keep, o.threads, o.repetitions,
        o.steps));
  }
  return OkStatus();
}

// Numbers holds normally distributed numbers, drawn once. Each row uses values from another place
// in them.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : values_(kCount + kMaxHeadDim) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& value : values_) value = normal(random);
  }
  [[nodiscard]] const float* At(size_t index) const {
    constexpr size_t kStride = 7919;  // prime: neighbours share no number
    return values_.data() + index * kStride % kCount;
  }

 private:
  static constexpr size_t kCount = 1 << 16;
  std::vector<float> values_;
};

// Sequence holds the cache of one sequence and the buffers of a decode step's attention. The values
// in the rows do not matter to the speed, but their places in memory do.
struct Sequence {
  AttentionShape shape;
  int num_layers = 0;
  std::unique_ptr<Arena> arena, t2;
  std::unique_ptr<SequenceCache> cache;
  std::vector<RowsView> views;             // [layers, kv heads]
  std::vector<CompressedRows> compressed;  // [layers, kv heads], or none
  std::vector<float> q;                    // [layers, q heads, head_dim]
  std::vector<float> out;                  // [layers, q heads, head_dim]
  std::vector<float> mass;                 // [rows], of all layers and heads
  std::vector<float*> mass_targets;        // [q heads]
  size_t bytes_per_step = 0;

  [[nodiscard]] DecodeQuery Query(int layer, std::span<float* const> targets) {
    const size_t floats = static_cast<size_t>(shape.num_q_heads) * shape.format.head_dim;
    const auto of_layer = [&](const auto& views_of_all) {
      const auto begin = static_cast<size_t>(layer) * shape.num_kv_heads;
      return std::span(views_of_all).subspan(begin, shape.num_kv_heads);
    };
    return {
        .rows = of_layer(views),
        .mass_elements = {},
        .compressed = compressed.empty() ? std::span<const CompressedRows>() : of_layer(compressed),
        .q = q.data() + layer * floats,
        .out = out.data() + layer * floats,
        .mass = {.per_query_head = targets}};
  }
};

// Returns the best kernel, or the one that the variable EBB_ATTENTION forces, as in the engine.
Result<const AttentionKernel*> ChooseKernel() {
  const char* forced = std::getenv("EBB_ATTENTION");
  if (forced == nullptr || *forced == '\0') return &CpuAttention();
  return AttentionByName(forced);
}

Status FillRows(const Numbers& numbers, const AttentionBenchmarkOptions& options, int threads,
                Sequence* s) {
  const int streams = s->num_layers * s->shape.num_kv_heads;
  const PageFormat& format = s->shape.format;
  return RunTeam(threads, [&](int thread) {
    for (int stream = thread; stream < streams; stream += threads) {
      for (int row = 0; row < options.rows; ++row) {
        const auto to =
            s->cache->views().Row(stream / s->shape.num_kv_heads, stream % s->shape.num_kv_heads,
                                  static_cast<uint32_t>(row));
        const size_t index = 2 * (static_cast<size_t>(stream) * options.rows + row);
        CpuAttention().store_row(format.type, numbers.At(index), to.key, format.head_dim);
        CpuAttention().store_row(format.type, numbers.At(index + 1), to.value, format.head_dim);
      }
    }
  });
}

// Returns the rows to remove, ascending: all but a random share options.keep.
std::vector<uint32_t> Removed(const AttentionBenchmarkOptions& options) {
  std::vector<uint32_t> rows(options.rows);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<uint32_t>(i);
  const auto kept = static_cast<size_t>(std::lround(options.keep * options.rows));
  std::vector<uint32_t> chosen, removed;
  std::mt19937_64 random(options.seed);
  std::ranges::sample(rows, std::back_inserter(chosen), std::max<ptrdiff_t>(kept, 1), random);
  std::ranges::set_difference(rows, chosen, std::back_inserter(removed));
  return removed;
}

Status CompressAll(SequenceCache* cache) {
  std::vector<RowMove> moves;
  for (uint32_t row = 0; row < cache->tables().max_rows(); ++row) moves.push_back({row, Tier::kT2});
  return cache->Move(0, moves);
}

Result<Sequence> MakeSequence(const AttentionBenchmarkOptions& options, const AttentionShape& shape,
                              int threads) {
  Sequence s;
  s.shape = shape;
  s.num_layers = options.shape.num_layers;
  const size_t streams = static_cast<size_t>(s.num_layers) * shape.num_kv_heads;
  const size_t pages = streams * (options.rows + kRowsPerPage - 1) / kRowsPerPage + streams;
  const size_t page_bytes = shape.format.PageBytes();
  const size_t pages_per_extent = std::max<size_t>(kExtentBytes / page_bytes, 1);
  EBB_ASSIGN_OR_RETURN(s.arena,
                       Arena::Create({.page_bytes = page_bytes,
                                      .cap_bytes = (pages / pages_per_extent + 2) * kExtentBytes}));
  CacheStores stores = {
      .t0 = s.arena.get(), .compressed = shape.compressed, .kernel = &CpuAttention()};
  if (shape.compressed.head_dim > 0) {
    EBB_ASSIGN_OR_RETURN(s.t2, Arena::Create({.page_bytes = shape.compressed.PageBytes(),
                                              .cap_bytes = s.arena->cap_bytes()}));
    stores.t2 = s.t2.get();
  }
  s.cache =
      std::make_unique<SequenceCache>(options.shape, shape.format, Granularity::kToken, stores);
  EBB_RETURN_IF_ERROR(s.cache->Append(0, options.rows));
  const Numbers numbers(options.seed);
  EBB_RETURN_IF_ERROR(FillRows(numbers, options, threads, &s));
  if (options.keep < 1) s.cache->Remove(0, Removed(options));
  if (stores.t2 != nullptr) EBB_RETURN_IF_ERROR(CompressAll(s.cache.get()));
  s.cache->FindAddresses();
  for (int layer = 0; layer < s.num_layers; ++layer) {
    for (int h = 0; h < shape.num_kv_heads; ++h) {
      s.views.push_back(s.cache->views().View(layer, h));
      if (stores.t2 != nullptr) s.compressed.push_back(s.cache->views().Compressed(layer, h));
    }
  }
  const size_t rows = s.cache->tables().max_rows();
  s.bytes_per_step =
      streams * rows *
      (stores.t2 != nullptr ? shape.compressed.RowStride() : shape.format.RowBytes());
  const size_t heads = static_cast<size_t>(s.num_layers) * shape.num_q_heads;
  for (size_t head = 0; head < heads; ++head) {
    s.q.insert(s.q.end(), numbers.At(head + 1), numbers.At(head + 1) + shape.format.head_dim);
  }
  s.out.resize(s.q.size());
  s.mass.resize(rows);
  s.mass_targets.assign(shape.num_q_heads, s.mass.data());
  return s;
}

void RunLayer(DecodeAttention* attention, const DecodeQuery& query) {
  attention->Plan(std::span(&query, 1));
  attention->Fold(0, 1);
  attention->Merge(0, 1);
}

// Returns the largest difference between `found` and `expected` as a share of the largest
// magnitude; NaN if either holds a NaN.
double Error(std::span<const float> found, std::span<const float> expected) {
  double difference = 0, magnitude = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double d = std::abs(double{found[i]} - expected[i]);
    if (!std::isfinite(d)) return NAN;
    difference = std::max(difference, d);
    magnitude = std::max(magnitude, std::abs(double{expected[i]}));
  }
  return magnitude > 0 ? difference / magnitude : NAN;
}

// Compares the first, a middle and the last layer with the reference kernel and returns the largest
// error. Errors: Internal if an error exceeds the tolerance.
Result<double> CheckResult(Sequence* s, DecodeAttention* attention) {
  // The kernels sum f32 products in another order than the reference, over at most 2^24 rows;
  // kernels of compressed rows also round queries and weights to integers.
  const double kTolerance = s->compressed.empty() ? 1e-4 : 2e-2;
  DecodeAttention reference(ReferenceAttention(), s->shape);
  reference.Reserve(1, s->mass.size(), 1);
  const size_t floats = static_cast<size_t>(s->shape.num_q_heads) * s->shape.format.head_dim;
  double largest = 0;
  for (const int layer : {0, s->num_layers / 2, s->num_layers - 1}) {
    const std::span<const float> out(s->out.data() + layer * floats, floats);
    std::ranges::fill(s->mass, 0.0f);
    RunLayer(&reference, s->Query(layer, s->mass_targets));
    const std::vector<float> expected_out(out.begin(), out.end());
    const std::vector<float> expected_mass = s->mass;
    std::ranges::fill(s->mass, 0.0f);
    RunLayer(attention, s->Query(layer, s->mass_targets));
    for (const double error : {Error(out, expected_out), Error(s->mass, expected_mass)}) {
      if (!(error <= kTolerance)) {
        return Internal(
            fmt::format("layer {}: attention differs from the reference by {}, more "
                        "than {}, of the result's magnitude",
                        layer, error, kTolerance));
      }
      largest = std::max(largest, error);
    }
  }
  return largest;
}

enum class Mass { kWithout, kWith };

// Runs attention in all layers for `steps` decode steps and returns the seconds per step. Every
// thread of the team calls this function.
double RunSteps(Sequence* s, DecodeAttention* attention, Mass mass, int steps, int thread,
                int threads, SpinBarrier* barrier) {
  std::span<float* const> targets;
  if (mass == Mass::kWith) targets = s->mass_targets;
  DecodeQuery query;
  barrier->Wait();
  const Clock::time_point start = Clock::now();
  for (int step = 0; step < steps; ++step) {
    if (thread == 0 && mass == Mass::kWith) std::ranges::fill(s->mass, 0.0f);
    for (int layer = 0; layer < s->num_layers; ++layer) {
      if (thread == 0) {
        query = s->Query(layer, targets);
        attention->Plan(std::span(&query, 1));
      }
      barrier->Wait();
      attention->Fold(thread, threads);
      barrier->Wait();
      attention->Merge(thread, threads);
      barrier->Wait();
    }
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / steps;
}

AttentionRate RateOf(std::span<const double> seconds, std::span<const double> limits,
                     size_t bytes_per_step) {
  std::vector<double> rates, shares, milliseconds;
  for (size_t i = 0; i < seconds.size(); ++i) {
    rates.push_back(static_cast<double>(bytes_per_step) / seconds[i] / 1e9);
    shares.push_back(rates.back() / limits[i]);
    milliseconds.push_back(seconds[i] * 1e3);
  }
  return {.read_gb_s = SpreadOf(rates),
          .share_of_limit = SpreadOf(shares),
          .step_ms = SpreadOf(milliseconds)};
}

}  // namespace

Result<AttentionBenchmark> BenchmarkAttention(const AttentionBenchmarkOptions& options) {
  const AttentionShape shape = {.num_q_heads = options.shape.num_q_heads,
                                .num_kv_heads = options.shape.num_kv_heads,
                                .scale = 1 / std::sqrt(static_cast<float>(options.shape.head_dim)),
                                .format = PageFormat::Of(options.shape, options.kv_type)};
  EBB_RETURN_IF_ERROR(CheckOptions(options, shape));
  const int threads = ResolveThreads(options.threads);
  EBB_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(options, shape, threads));
  EBB_ASSIGN_OR_RETURN(const AttentionKernel* kernel, ChooseKernel());
  DecodeAttention attention(*kernel, shape);
  attention.Reserve(1, sequence.mass.size(), threads);
  AttentionBenchmark result = {.threads = threads,
                               .kernel = std::string(kernel->name),
                               .rows_kept = static_cast<int>(sequence.mass.size()),
                               .bytes_per_step = sequence.bytes_per_step};
  EBB_ASSIGN_OR_RETURN(result.max_error, CheckResult(&sequence, &attention));

  AttentionShape t2_shape = shape;
  Sequence t2_sequence;
  if (options.compressed.has_value()) {
    t2_shape.compressed = CompressedFormat::Of(shape.format, *options.compressed);
    EBB_ASSIGN_OR_RETURN(t2_sequence, MakeSequence(options, t2_shape, threads));
  }
  DecodeAttention t2_attention(*kernel, t2_shape);
  if (options.compressed.has_value()) {
    t2_attention.Reserve(1, t2_sequence.mass.size(), threads);
    EBB_RETURN_IF_ERROR(CheckResult(&t2_sequence, &t2_attention).status());
  }

  const BenchmarkBuffer buffer(kLimitBytes);
  if (buffer.data() == nullptr) return OutOfMemory("no memory for a buffer of 256 MiB");
  SpinBarrier barrier(threads);
  std::atomic<uint64_t> sink = 0;
  std::vector<double> limits, without, with, compressed, ratios;
  EBB_RETURN_IF_ERROR(RunTeam(threads, [&](int thread) {
    for (int repetition = -1; repetition < options.repetitions; ++repetition) {
      const double limit =
          ReadBandwidth({buffer.data(), buffer.size()}, thread, threads, &barrier, &sink);
      const auto seconds = [&](Sequence* s, DecodeAttention* a, Mass mass) {
        return RunSteps(s, a, mass, options.steps, thread, threads, &barrier);
      };
      const double seconds_without = seconds(&sequence, &attention, Mass::kWithout);
      const double seconds_with = seconds(&sequence, &attention, Mass::kWith);
      const double seconds_compressed =
          options.compressed ? seconds(&t2_sequence, &t2_attention, Mass::kWithout) : 0;
      if (thread != 0 || repetition < 0) continue;  // the first one warms up
      limits.push_back(limit);
      without.push_back(seconds_without);
      with.push_back(seconds_with);
      compressed.push_back(seconds_compressed);
      ratios.push_back(seconds_compressed / seconds_without);
      if (options.progress) options.progress(repetition + 1);
    }
  }));
  result.limit_gb_s = SpreadOf(limits);
  result.without_mass = RateOf(without, limits, result.bytes_per_step);
  result.with_mass = RateOf(with, limits, result.bytes_per_step);
  if (options.compressed.has_value()) {
    result.compressed = RateOf(compressed, limits, t2_sequence.bytes_per_step);
    result.compressed_time_ratio = SpreadOf(ratios);
  }
  return result;
}

}  // namespace ebb
