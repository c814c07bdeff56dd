// Measures the cost of the row store compared with a decode step, at the shape of SmolLM2-135M with
// a table for every kv head, the finest granularity: 90 tables, and 90 streams of pages.
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "src/kv/retain_for_test.h"
#include "src/kv/sequence_cache.h"

namespace ebb {
namespace {

constexpr int kLayers = 30;
constexpr int kKvHeads = 3;
constexpr int kGroups = kLayers * kKvHeads;
constexpr PageFormat kFormat{.type = RowType::kF16, .head_dim = 64};

struct Store {
  std::unique_ptr<Arena> arena;
  std::unique_ptr<SequenceCache> cache;
};

// Makes a cache of `num_rows` rows in each of 90 tables. Removing another row in each group makes
// the tables differ, so that they no longer share one copy.
Store MakeStore(int num_rows) {
  Store store;
  auto arena = Arena::Create({.page_bytes = kFormat.PageBytes(), .cap_bytes = size_t{1} << 30});
  if (!arena.ok()) std::abort();
  store.arena = *std::move(arena);
  const ModelShape shape{
      .num_layers = kLayers, .num_q_heads = 9, .num_kv_heads = kKvHeads, .head_dim = 64};
  store.cache = std::make_unique<SequenceCache>(shape, kFormat, Granularity::kHead,
                                                CacheStores{.t0 = store.arena.get()});
  if (!store.cache->Append(0, num_rows + 1).ok()) std::abort();
  for (uint32_t group = 0; group < kGroups; ++group) {
    store.cache->Remove(static_cast<int>(group), std::vector<uint32_t>{group});
  }
  return store;
}

void WriteRows(SequenceCache* cache) {
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      const auto num_rows = static_cast<uint32_t>(cache->views().View(layer, kv_head).size());
      for (uint32_t i = 0; i < num_rows; ++i) {
        const RowAddress row = cache->views().Row(layer, kv_head, i);
        std::memset(row.key, static_cast<int>(i & 0xff), kFormat.RowStride());
        std::memset(row.value, static_cast<int>(i >> 8), kFormat.RowStride());
      }
    }
  }
}

// Keeps one of every 8 rows, chosen at random for each group.
void RetainAnEighth(SequenceCache* cache, int num_rows) {
  std::mt19937 random(1);
  std::vector<uint32_t> kept(static_cast<size_t>(num_rows) / 8);
  for (int group = 0; group < kGroups; ++group) {
    for (uint32_t i = 0; i < kept.size(); ++i) kept[i] = i * 8 + random() % 8;
    RetainRows(group, kept, cache);
  }
}

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Measures appending one token to all 90 tables. Every 64th token needs a new page in every stream.
void AppendOneToken(benchmark::State& state) {
  const auto depth = static_cast<int>(state.range(0));
  const Store store = MakeStore(depth);
  Position next = depth + 1;
  for (auto _ : state) {
    if (!store.cache->Append(next++, 1).ok()) state.SkipWithError("append failed");
    if (next == depth + 1 + 1024) {
      state.PauseTiming();
      store.cache->TruncateTo(depth + 1);
      next = depth + 1;
      state.ResumeTiming();
    }
  }
}
BENCHMARK(AppendOneToken)->Arg(1024)->Arg(8000)->Unit(benchmark::kMicrosecond);

// Measures the removal in a decode step under a budget, in which one token is appended and one row
// of each group is removed.
void RemoveOneRowOfEachGroup(benchmark::State& state) {
  const auto num_rows = static_cast<int>(state.range(0));
  const Store store = MakeStore(num_rows);
  std::mt19937 random(2);
  std::vector<uint32_t> removed(kGroups);
  Position next = num_rows + 1;
  for (auto _ : state) {
    if (!store.cache->Append(next++, 1).ok()) state.SkipWithError("append failed");
    for (uint32_t& index : removed) index = random() % static_cast<uint32_t>(num_rows + 1);
    const auto start = std::chrono::steady_clock::now();
    for (int group = 0; group < kGroups; ++group) {
      store.cache->Remove(group, std::span(removed).subspan(static_cast<size_t>(group), 1));
    }
    state.SetIterationTime(SecondsSince(start));
  }
  if (store.cache->tables().max_rows() != static_cast<size_t>(num_rows)) {
    state.SkipWithError("the number of rows did not stay the same");
  }
}
BENCHMARK(RemoveOneRowOfEachGroup)
    ->Arg(1024)
    ->Arg(8000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

// Measures building the row views of all streams, as each step needs them.
void ViewEveryStream(benchmark::State& state) {
  const Store store = MakeStore(1024);
  for (auto _ : state) {
    size_t num_rows = 0;
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        num_rows += store.cache->views().View(layer, kv_head).size();
      }
    }
    benchmark::DoNotOptimize(num_rows);
  }
}
BENCHMARK(ViewEveryStream)->Unit(benchmark::kMicrosecond);

// Measures removing 7,000 of 8,000 rows in each of 90 groups.
void RetainAnEighthOfEachGroup(benchmark::State& state) {
  for (auto _ : state) {
    const Store store = MakeStore(8000);
    const auto start = std::chrono::steady_clock::now();
    RetainAnEighth(store.cache.get(), 8000);
    state.SetIterationTime(SecondsSince(start));
    if (store.cache->tables().max_rows() != 1000) state.SkipWithError("not 1,000 rows are left");
  }
}
BENCHMARK(RetainAnEighthOfEachGroup)->UseManualTime()->Unit(benchmark::kMillisecond);

// Measures compaction after that removal: rows move out of sparse pages, and pages out of sparse
// extents.
void CompactAfterRetaining(benchmark::State& state) {
  double cache_seconds = 0;
  double arena_seconds = 0;
  size_t cache_bytes = 0;
  size_t arena_bytes = 0;
  for (auto _ : state) {
    const Store store = MakeStore(8000);
    WriteRows(store.cache.get());
    RetainAnEighth(store.cache.get(), 8000);
    const auto start = std::chrono::steady_clock::now();
    cache_bytes += store.cache->Compact(SIZE_MAX);
    const double seconds = SecondsSince(start);
    arena_bytes += store.arena->Compact(SIZE_MAX);
    state.SetIterationTime(SecondsSince(start));
    cache_seconds += seconds;
    arena_seconds += SecondsSince(start) - seconds;
    if (store.arena->stats().num_pages != kGroups * 16) state.SkipWithError("pages are left over");
  }
  state.SetBytesProcessed(static_cast<int64_t>(cache_bytes + arena_bytes));
  const auto iterations = static_cast<double>(state.iterations());
  state.counters["cache_ms"] = cache_seconds * 1e3 / iterations;
  state.counters["cache_mib"] = static_cast<double>(cache_bytes) / iterations / (1 << 20);
  state.counters["arena_ms"] = arena_seconds * 1e3 / iterations;
  state.counters["arena_mib"] = static_cast<double>(arena_bytes) / iterations / (1 << 20);
}
BENCHMARK(CompactAfterRetaining)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ebb
