#include "src/kv/sequence_cache.h"
#include "src/kv/retain_for_test.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kLayers = 3;
constexpr int kKvHeads = 2;
constexpr int kStreams = kLayers * kKvHeads;

ModelShape Shape() {
  return {.num_layers = kLayers, .num_q_heads = 4, .num_kv_heads = kKvHeads, .head_dim = 64};
}

PageFormat Format() { return {.type = RowType::kF16, .head_dim = 64}; }

std::vector<uint32_t> Every(uint32_t step, uint32_t end) {
  std::vector<uint32_t> indices;
  for (uint32_t i = 0; i < end; i += step) indices.push_back(i);
  return indices;
}

// An arena of at most `num_extents` and one cache in it.
struct Fixture {
  explicit Fixture(Granularity granularity, size_t num_extents = 64) {
    auto made = Arena::Create(
        {.page_bytes = Format().PageBytes(), .cap_bytes = num_extents * kExtentBytes});
    EXPECT_TRUE(made.ok());
    arena = *std::move(made);
    cache = std::make_unique<SequenceCache>(Shape(), Format(), granularity,
                                            CacheStores{.t0 = arena.get()});
  }
  ~Fixture() {
    if (cache != nullptr) {
      cache->FindAddresses();
      const Status status = cache->Validate();
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    cache.reset();
    EXPECT_EQ(arena->stats().used_bytes, 0u);
    EXPECT_EQ(arena->stats().reserved_bytes, 0u);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  // Fills key and value of a row with bytes that name the stream and the position.
  void Write(int layer, int kv_head, uint32_t index) const {
    const RowAddress row = cache->views().Row(layer, kv_head, index);
    const Position position = cache->positions(cache->layout().GroupOf(layer, kv_head))[index];
    std::memset(row.key, Pattern(layer, kv_head, position), Format().RowStride());
    std::memset(row.value, Pattern(layer, kv_head, position) ^ 0xff, Format().RowStride());
  }
  void WriteAll() const {
    ForEachRow([this](int layer, int kv_head, uint32_t index) { Write(layer, kv_head, index); });
  }
  void ExpectEveryRowHoldsItsOwn() const {
    ForEachRow([this](int layer, int kv_head, uint32_t index) {
      const RowsView view = cache->views().View(layer, kv_head);
      const std::byte* key =
          view.pages[view.slots[index].page()] + view.slots[index].row() * Format().RowStride();
      const int pattern = Pattern(layer, kv_head, view.positions[index]);
      for (size_t b = 0; b < Format().RowStride(); ++b) {
        ASSERT_EQ(key[b], std::byte(pattern));
        ASSERT_EQ(key[Format().ValueOffset() + b], std::byte(pattern ^ 0xff));
      }
    });
  }

  std::unique_ptr<Arena> arena;
  std::unique_ptr<SequenceCache> cache;

 private:
  static int Pattern(int layer, int kv_head, Position position) {
    return (layer * 97 + kv_head * 31 + position * 7) & 0xff;
  }
  template <typename F>
  void ForEachRow(F f) const {
    cache->FindAddresses();
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        const size_t num_rows = cache->views().View(layer, kv_head).size();
        for (uint32_t i = 0; i < num_rows; ++i) f(layer, kv_head, i);
      }
    }
  }
};

TEST(SequenceCacheTest, GroupsAreNumberedLayerMajor) {
  const Fixture token(Granularity::kToken);
  const Fixture layer(Granularity::kLayer);
  const Fixture head(Granularity::kHead);
  EXPECT_EQ(token.cache->layout().num_groups(), 1);
  EXPECT_EQ(layer.cache->layout().num_groups(), kLayers);
  EXPECT_EQ(head.cache->layout().num_groups(), kStreams);
  EXPECT_EQ(token.cache->layout().GroupOf(2, 1), 0);
  EXPECT_EQ(layer.cache->layout().GroupOf(2, 1), 2);
  EXPECT_EQ(head.cache->layout().GroupOf(2, 1), 5);
  EXPECT_EQ(head.cache->layout().granularity(), Granularity::kHead);
  EXPECT_EQ(head.cache->layout().format().head_dim, 64);
}

TEST(SequenceCacheTest, AnEmptyCacheOwnsNoPages) {
  const Fixture f(Granularity::kHead);
  EXPECT_EQ(f.cache->views().View(0, 0).size(), 0u);
  EXPECT_EQ(f.cache->tables().max_rows(), 0u);
  EXPECT_TRUE(f.cache->Append(0, 0).ok());
  EXPECT_EQ(f.arena->stats().num_pages, 0u);
}

TEST(SequenceCacheTest, RowsKeepTheirBytesWhileTheCacheGrows) {
  const Fixture f(Granularity::kLayer);
  for (Position first = 0; first < 700; first += 7) {
    ASSERT_TRUE(f.cache->Append(first, 7).ok());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        for (int i = 0; i < 7; ++i) f.Write(layer, kv_head, static_cast<uint32_t>(first + i));
      }
    }
  }
  f.ExpectEveryRowHoldsItsOwn();
  EXPECT_EQ(f.cache->tables().max_rows(), 700u);
}

TEST(SequenceCacheTest, GroupsShareATableUntilTheyDiffer) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 200).ok());
  f.WriteAll();
  EXPECT_EQ(f.cache->accounting().num_tables, 1);
  RetainRows(3, Every(1, 200), f.cache.get());
  f.cache->Remove(3, {});
  EXPECT_EQ(f.cache->accounting().num_tables, 1);
  f.cache->Remove(3, std::vector<uint32_t>{10});
  EXPECT_EQ(f.cache->accounting().num_tables, 2);
  EXPECT_EQ(f.cache->positions(3)[10], 11);
  EXPECT_EQ(f.cache->positions(2)[10], 10);
  for (const int group : {0, 1, 2, 4, 5}) f.cache->Remove(group, std::vector<uint32_t>{10});
  EXPECT_EQ(f.cache->accounting().num_tables, kStreams);
  ASSERT_TRUE(f.cache->Append(200, 3).ok());
  f.WriteAll();
  f.ExpectEveryRowHoldsItsOwn();
}

TEST(SequenceCacheTest, RemovingFromOneGroupLeavesTheOthersAlone) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 300).ok());
  f.WriteAll();
  RetainRows(0, std::vector<uint32_t>{5, 299}, f.cache.get());
  RetainRows(4, {}, f.cache.get());
  EXPECT_THAT(f.cache->positions(0), ElementsAre(5, 299));
  EXPECT_TRUE(f.cache->positions(4).empty());
  EXPECT_EQ(f.cache->positions(1).size(), 300u);
  EXPECT_EQ(f.cache->tables().max_rows(), 300u);
  f.ExpectEveryRowHoldsItsOwn();
  EXPECT_EQ(f.cache->accounting().rows_evicted, 298 + 300);
}

TEST(SequenceCacheTest, RollingBackRemovesTheTailOfEveryGroupAndRevivesNothing) {
  const Fixture f(Granularity::kLayer);
  ASSERT_TRUE(f.cache->Append(0, 100).ok());
  f.cache->Remove(1, std::vector<uint32_t>{20, 90});
  f.cache->TruncateTo(50);
  EXPECT_EQ(f.cache->positions(0).size(), 50u);
  EXPECT_EQ(f.cache->positions(1).size(), 49u);
  EXPECT_EQ(f.cache->positions(1).back(), 49);
  EXPECT_EQ(f.cache->accounting().rows_evicted, 2 * kKvHeads);
  ASSERT_TRUE(f.cache->Append(50, 1).ok());
  EXPECT_EQ(f.cache->positions(1).back(), 50);
}

TEST(SequenceCacheTest, ReachingTheCapChangesNothing) {
  const Fixture f(Granularity::kHead, 1);  // 128 pages: 21 for each of the 6 streams
  ASSERT_TRUE(f.cache->Append(0, 21 * kRowsPerPage).ok());
  f.WriteAll();
  f.cache->Remove(2, std::vector<uint32_t>{0});
  const ArenaStats before = f.arena->stats();
  const Status status = f.cache->Append(21 * kRowsPerPage, 1);
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("of its cap of 2 MiB are mapped"));
  EXPECT_EQ(f.arena->stats().num_pages, before.num_pages);
  EXPECT_EQ(f.cache->positions(0).size(), 21u * kRowsPerPage);
  EXPECT_EQ(f.cache->positions(2).size(), 21u * kRowsPerPage - 1);
  EXPECT_TRUE(f.cache->Validate().ok());
  f.ExpectEveryRowHoldsItsOwn();
  // One row from every group makes room for one token.
  for (const int group : {0, 1, 3, 4, 5}) f.cache->Remove(group, std::vector<uint32_t>{7});
  EXPECT_TRUE(f.cache->Append(21 * kRowsPerPage, 1).ok());
}

TEST(SequenceCacheTest, APositionThatDoesNotFollowIsRefused) {
  const Fixture f(Granularity::kLayer);
  ASSERT_TRUE(f.cache->Append(0, 10).ok());
  const Status status = f.cache->Append(9, 1);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("position 9 does not follow position 9"));
  EXPECT_EQ(f.cache->Append(10, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(f.cache->Append(-1, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(f.cache->Append(kVisibleForEver, 1).message(),
              HasSubstr("cannot append 1 tokens at position 2147483647"));
  EXPECT_EQ(f.cache->tables().max_rows(), 10u);
  EXPECT_TRUE(f.cache->Append(100, 2).ok());
  EXPECT_EQ(f.cache->positions(0).back(), 101);
}

TEST(SequenceCacheTest, AskingForFarMoreThanTheCapIsAnErrorAndChangesNothing) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 10).ok());
  const Status status = f.cache->Append(10, kVisibleForEver - 10);
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_EQ(f.cache->tables().max_rows(), 10u);
  EXPECT_TRUE(f.cache->Append(10, 10).ok());
}

TEST(SequenceCacheTest, ViewsShowLastVisiblePositions) {
  const Fixture f(Granularity::kLayer);
  ASSERT_TRUE(f.cache->Append(0, 3).ok());
  EXPECT_TRUE(f.cache->views().View(1, 0).last_visible.empty());
  f.cache->SetLastVisible(1, 0, 5);
  EXPECT_THAT(f.cache->views().View(1, 1).last_visible,
              ElementsAre(5, kVisibleForEver, kVisibleForEver));
  EXPECT_TRUE(f.cache->views().View(0, 0).last_visible.empty());
  f.cache->SetLastVisible(1, 0, kVisibleForEver);
  EXPECT_TRUE(f.cache->views().View(1, 1).last_visible.empty());
}

TEST(SequenceCacheTest, CompactingKeepsRowsAndFreesPages) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    const Fixture f(granularity);
    ASSERT_TRUE(f.cache->Append(0, 1000).ok());
    f.WriteAll();
    std::vector<std::vector<Position>> positions;
    for (int group = 0; group < f.cache->layout().num_groups(); ++group) {
      RetainRows(group, Every(7 + static_cast<uint32_t>(group), 1000), f.cache.get());
      positions.emplace_back(f.cache->positions(group).begin(), f.cache->positions(group).end());
    }
    EXPECT_EQ(f.arena->stats().num_pages, 16u * kStreams);
    EXPECT_GT(f.cache->Compact(SIZE_MAX), 0u);
    f.ExpectEveryRowHoldsItsOwn();
    EXPECT_TRUE(f.cache->Validate().ok());
    size_t num_pages = 0;
    for (int group = 0; group < f.cache->layout().num_groups(); ++group) {
      EXPECT_EQ(positions[group],
                std::vector(f.cache->positions(group).begin(), f.cache->positions(group).end()));
      num_pages += (positions[group].size() + kRowsPerPage - 1) / kRowsPerPage * kStreams /
                   f.cache->layout().num_groups();
    }
    EXPECT_EQ(f.arena->stats().num_pages, num_pages);
    EXPECT_EQ(f.cache->Compact(SIZE_MAX), 0u);
  }
}

TEST(SequenceCacheTest, CompactingStaysWithinItsBudgetAndReachesEveryTable) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 640).ok());
  f.WriteAll();
  for (int group = 0; group < kStreams; ++group) RetainRows(group, Every(10, 640), f.cache.get());
  constexpr size_t kBudget = 8 * 256;
  int num_calls = 0;
  while (f.arena->stats().num_pages > kStreams) {
    ASSERT_LT(num_calls++, 1000);
    const size_t copied = f.cache->Compact(kBudget);
    EXPECT_LE(copied, kBudget);
    EXPECT_GT(copied, 0u);
  }
  f.ExpectEveryRowHoldsItsOwn();
}

TEST(SequenceCacheTest, CompactingWithASmallBudgetServesTheTablesInTurn) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 640).ok());
  for (int group = 0; group < kStreams; ++group) RetainRows(group, Every(10, 640), f.cache.get());
  constexpr size_t kBudget = 8 * 256;  // of the 6 or 7 rows of one page
  for (int call = 0; call < kStreams; ++call) f.cache->Compact(kBudget);
  for (int stream = 0; stream < kStreams; ++stream) {
    std::set<uint32_t> pages;
    for (const Slot slot : f.cache->views().View(stream / kKvHeads, stream % kKvHeads).slots) {
      pages.insert(slot.page());
    }
    EXPECT_EQ(pages.size(), 9u) << "of 10, in stream " << stream;
  }
}

// Drops a row of every group and appends one, as a policy under a budget does.
void ReplaceRows(const Fixture& f, int num_steps) {
  for (int step = 0; step < num_steps; ++step) {
    for (int group = 0; group < f.cache->layout().num_groups(); ++group) {
      const auto num_rows = static_cast<uint32_t>(f.cache->positions(group).size());
      f.cache->Remove(group, std::vector<uint32_t>{(step * 37u + group) % num_rows});
    }
    ASSERT_TRUE(f.cache->Append(1000 + step, 1).ok());
  }
}

TEST(SequenceCacheTest, SortingPutsMemoryInOrderOfPosition) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    const Fixture f(granularity);
    ASSERT_TRUE(f.cache->Append(0, 300).ok());
    ReplaceRows(f, 200);
    f.WriteAll();
    EXPECT_FALSE(std::ranges::is_sorted(f.cache->views().View(0, 0).slots));
    EXPECT_GT(f.cache->Sort(SIZE_MAX), 0u);
    for (int stream = 0; stream < kStreams; ++stream) {
      EXPECT_TRUE(std::ranges::is_sorted(
          f.cache->views().View(stream / kKvHeads, stream % kKvHeads).slots));
    }
    f.ExpectEveryRowHoldsItsOwn();
    EXPECT_TRUE(f.cache->Validate().ok());
    EXPECT_EQ(f.cache->Sort(SIZE_MAX), 0u);
  }
}

// Appends rows to tables whose lowest slots are free, so that each lies before the row before it.
void LetStray(const Fixture& f, Position first, int num_rows) {
  for (int i = 0; i < num_rows; ++i) {
    for (int group = 0; group < f.cache->layout().num_groups(); ++group) {
      const auto all = f.cache->positions(group).size();
      f.cache->Remove(group, std::vector<uint32_t>{static_cast<uint32_t>(all) - 40 - 2 * i});
    }
    ASSERT_TRUE(f.cache->Append(first + i, 1).ok());
  }
}

TEST(SequenceCacheTest, SortingWaitsForAPageOfStraysOrOneRowInSixteen) {
  for (const int num_rows : {640, 3200}) {
    const Fixture f(Granularity::kToken);
    ASSERT_TRUE(f.cache->Append(0, num_rows).ok());
    const int worth = std::max(64, num_rows / 16);
    LetStray(f, num_rows, worth - 20);
    EXPECT_EQ(f.cache->Sort(SIZE_MAX), 0u) << num_rows;
    LetStray(f, 2 * num_rows, worth + 20);
    EXPECT_GT(f.cache->Sort(SIZE_MAX), 0u) << num_rows;
  }
}

TEST(SequenceCacheTest, StraysThatWentDoNotCount) {
  const Fixture f(Granularity::kToken);
  ASSERT_TRUE(f.cache->Append(0, 640).ok());
  LetStray(f, 640, 30);
  LetStray(f, 670, 100);
  f.cache->TruncateTo(670);
  EXPECT_FALSE(std::ranges::is_sorted(f.cache->views().View(0, 0).slots));
  EXPECT_EQ(f.cache->Sort(SIZE_MAX), 0u);
}

TEST(SequenceCacheTest, SortingWithASmallBudgetServesTheTablesInTurn) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 640).ok());
  const auto is_sorted = [&](int stream) {
    return std::ranges::is_sorted(
        f.cache->views().View(stream / kKvHeads, stream % kKvHeads).slots);
  };
  std::set<int> sorted;
  for (int call = 0; call < kStreams; ++call) {
    LetStray(f, 640 + call * 100, 100);
    EXPECT_GT(f.cache->Sort(1), 0u);
    for (int stream = 0; stream < kStreams; ++stream) {
      if (!is_sorted(stream)) continue;
      EXPECT_TRUE(sorted.insert(stream).second) << "again, in call " << call;
    }
    EXPECT_EQ(sorted.size(), call + 1u);
  }
}

TEST(SequenceCacheTest, AccountingIsExact) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 100).ok());
  f.cache->Remove(1, std::vector<uint32_t>{99});
  const CacheAccounting accounting = f.cache->accounting();
  const TierAccounting& t0 = accounting.tiers[0];
  EXPECT_EQ(t0.rows, 100 * kStreams - 1);
  EXPECT_EQ(t0.row_bytes, (100 * kStreams - 1) * 2 * 64 * sizeof(uint16_t));
  EXPECT_EQ(t0.page_bytes, 2 * kStreams * Format().PageBytes());
  EXPECT_EQ(t0.page_bytes, f.arena->stats().used_bytes);
  for (const int tier : {1, 2, 3}) EXPECT_EQ(accounting.tiers[tier].rows, 0);
  EXPECT_EQ(accounting.rows_evicted, 1);
  EXPECT_EQ(accounting.num_tables, 2);
  EXPECT_GT(accounting.table_bytes, 2u * 100 * 8);
}

TEST(SequenceCacheTest, EveryRowTypeAndHeadSizeHasItsOwnStride) {
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      const PageFormat format{.type = type, .head_dim = head_dim};
      auto arena = Arena::Create({.page_bytes = format.PageBytes(), .cap_bytes = kExtentBytes});
      ASSERT_TRUE(arena.ok());
      ModelShape shape = Shape();
      shape.head_dim = head_dim;
      SequenceCache cache(shape, format, Granularity::kToken, {.t0 = arena->get()});
      ASSERT_TRUE(cache.Append(0, 2).ok());
      const auto first = cache.views().Row(1, 1, 0);
      const auto second = cache.views().Row(1, 1, 1);
      const auto row_bytes = static_cast<ptrdiff_t>(head_dim * RowTypeBytes(type));
      EXPECT_EQ(second.key - first.key, row_bytes);
      EXPECT_EQ(first.value - first.key, row_bytes * kRowsPerPage);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(first.key) % 64, 0u);
    }
  }
}

TEST(SequenceCacheTest, ThreadsWriteAndReadDistinctStreamsAtOnce) {
  const Fixture f(Granularity::kToken);
  ASSERT_TRUE(f.cache->Append(0, 200).ok());
  std::vector<std::thread> threads;
  for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    threads.emplace_back([&f, kv_head] {
      for (int layer = 0; layer < kLayers; ++layer) {
        for (uint32_t i = 0; i < f.cache->views().View(layer, kv_head).size(); ++i) {
          f.Write(layer, kv_head, i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  f.ExpectEveryRowHoldsItsOwn();
}

// Pages go, others stay: 150 of 300 rows, among them all of the first two pages.
TEST(SequenceCacheTest, ThreadsRemoveRowsOfDistinctGroupsAtOnce) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 301).ok());
  for (int group = 0; group < kStreams; ++group) {
    f.cache->Remove(group, std::vector<uint32_t>{300});
  }
  f.WriteAll();
  std::vector<uint32_t> removed(2 * kRowsPerPage);
  std::iota(removed.begin(), removed.end(), 0);
  while (removed.size() < 150) removed.push_back(static_cast<uint32_t>(removed.size() + 50));
  std::array<SequenceCache::Removal::Lists, 2> lists;
  std::array<std::optional<SequenceCache::Removal>, 2> removals;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    removals[t].emplace(f.cache.get(), &lists[t]);
    threads.emplace_back([&, t] {
      for (int group = t * kStreams / 2; group < (t + 1) * kStreams / 2; ++group) {
        EXPECT_TRUE(removals[t]->Remove(group, removed));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& removal : removals) removal.reset();
  EXPECT_EQ(f.arena->stats().num_pages, kStreams * 3u);
  EXPECT_EQ(f.cache->accounting().rows_evicted, kStreams * 151);
  EXPECT_EQ(f.cache->positions(5).size(), 150u);
  EXPECT_EQ(f.cache->positions(5).front(), Position{2 * kRowsPerPage});
  f.ExpectEveryRowHoldsItsOwn();
}

TEST(SequenceCacheTest, ARemovalInPartsLeavesSharedTablesAlone) {
  const Fixture f(Granularity::kHead);
  ASSERT_TRUE(f.cache->Append(0, 100).ok());
  f.cache->Remove(3, std::vector<uint32_t>{10});
  SequenceCache::Removal::Lists lists;
  {
    SequenceCache::Removal removal(f.cache.get(), &lists);
    EXPECT_FALSE(removal.Remove(2, std::vector<uint32_t>{10}));
    EXPECT_TRUE(removal.Remove(3, std::vector<uint32_t>{10}));
    EXPECT_EQ(removal.num_rows(), 1u);
  }
  EXPECT_EQ(f.cache->positions(2).size(), 100u);
  EXPECT_EQ(f.cache->positions(3).size(), 98u);
  EXPECT_EQ(f.cache->accounting().rows_evicted, 2);
}

TEST(SequenceCacheTest, SequencesShareAnArenaWithoutTouchingEachOther) {
  const Fixture f(Granularity::kHead);
  SequenceCache other(Shape(), Format(), Granularity::kToken, {.t0 = f.arena.get()});
  for (Position first = 0; first < 300; first += 10) {
    ASSERT_TRUE(f.cache->Append(first, 10).ok());
    ASSERT_TRUE(other.Append(first, 10).ok());
  }
  f.WriteAll();
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      for (uint32_t i = 0; i < 300; ++i) {
        std::memset(other.views().Row(layer, kv_head, i).key, 0xaa, Format().RowStride());
        std::memset(other.views().Row(layer, kv_head, i).value, 0xbb, Format().RowStride());
      }
    }
  }
  f.ExpectEveryRowHoldsItsOwn();
  RetainRows(0, Every(20, 300), &other);
  other.Compact(SIZE_MAX);
  f.arena->Compact(SIZE_MAX);
  f.ExpectEveryRowHoldsItsOwn();
  other.FindAddresses();
  EXPECT_EQ(std::vector(other.views().Row(2, 1, 14).key, other.views().Row(2, 1, 14).key + 4),
            std::vector(4, std::byte{0xaa}));
}

}  // namespace
}  // namespace ebb
