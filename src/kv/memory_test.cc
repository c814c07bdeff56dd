// Compares the system's figures of memory with the accounting.
#include <sys/resource.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/sanitizers.h"
#include "src/kv/retain_for_test.h"
#include "src/kv/sequence_cache.h"
#include "tests/support/process_memory.h"
#include "tests/support/skip.h"
#include "tests/support/smollm2_shape.h"

namespace ebb {
namespace {

size_t AccountedBytes(const Arena& arena, const SequenceCache& cache) {
  const ArenaStats stats = arena.stats();
  return stats.reserved_bytes + stats.table_bytes + cache.accounting().table_bytes;
}

void ExpectResident(size_t base_bytes, size_t accounted_bytes) {
  const size_t resident_bytes = MeasureProcess().resident_bytes;
  const double grown = static_cast<double>(resident_bytes) - static_cast<double>(base_bytes);
  const double accounted = static_cast<double>(accounted_bytes);
  EXPECT_NEAR(grown, accounted, 0.05 * accounted + (4 << 20));
}

// The shape of SmolLM2-135M.
constexpr int kSmolLm2Layers = kSmolLm2Shape.num_layers;
constexpr int kSmolLm2KvHeads = kSmolLm2Shape.num_kv_heads;
constexpr PageFormat kSmolLm2Format{.type = RowType::kF16, .head_dim = 64};
constexpr size_t kPagesPerExtent = kExtentBytes / (2 * 64 * 128);

void WriteNewRows(SequenceCache* cache, uint32_t begin, uint32_t end) {
  cache->FindAddresses();
  for (int layer = 0; layer < kSmolLm2Layers; ++layer) {
    for (int kv_head = 0; kv_head < kSmolLm2KvHeads; ++kv_head) {
      for (uint32_t i = begin; i < end; ++i) {
        const RowAddress row = cache->views().Row(layer, kv_head, i);
        std::memset(row.key, static_cast<int>(i & 0x7f), kSmolLm2Format.RowStride());
        std::memset(row.value, static_cast<int>(i >> 7), kSmolLm2Format.RowStride());
      }
    }
  }
}

TEST(MemoryTest, RowsThatGoGiveTheirMemoryBackToTheSystem) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  auto arena =
      Arena::Create({.page_bytes = kSmolLm2Format.PageBytes(), .cap_bytes = size_t{1} << 30});
  ASSERT_TRUE(arena.ok());
  const size_t base_bytes = MeasureProcess().resident_bytes;
  auto cache = std::make_unique<SequenceCache>(kSmolLm2Shape, kSmolLm2Format, Granularity::kHead,
                                               CacheStores{.t0 = arena->get()});

  // A token at a time after a prompt, each head losing other rows: 90 tables grow and shrink.
  ASSERT_TRUE(cache->Append(0, 500).ok());
  WriteNewRows(cache.get(), 0, 500);
  for (int group = 0; group < cache->layout().num_groups(); ++group) {
    cache->Remove(group, std::vector<uint32_t>{static_cast<uint32_t>(group)});
  }
  for (uint32_t num_rows = 499; num_rows < 8000; ++num_rows) {
    ASSERT_TRUE(cache->Append(static_cast<Position>(num_rows + 1), 1).ok());
    WriteNewRows(cache.get(), num_rows, num_rows + 1);
  }
  EXPECT_GE((*arena)->stats().reserved_bytes, size_t{90} * 8000 * 256);
  ExpectResident(base_bytes, AccountedBytes(**arena, *cache));

  std::mt19937 random(5);
  std::vector<uint32_t> kept(1000);
  for (int group = 0; group < cache->layout().num_groups(); ++group) {
    for (uint32_t i = 0; i < kept.size(); ++i) kept[i] = i * 8 + random() % 8;
    RetainRows(group, kept, cache.get());
  }
  EXPECT_GT(cache->Compact(SIZE_MAX), 0u);
  EXPECT_GT((*arena)->Compact(SIZE_MAX), 0u);
  constexpr size_t kNeededPages = 90 * ((1000 + kRowsPerPage - 1) / kRowsPerPage);
  constexpr size_t kNeededExtents = (kNeededPages + kPagesPerExtent - 1) / kPagesPerExtent;
  EXPECT_EQ((*arena)->stats().num_pages, kNeededPages);
  EXPECT_LE((*arena)->stats().reserved_bytes, (kNeededExtents + 1) * kExtentBytes);
  ExpectResident(base_bytes, AccountedBytes(**arena, *cache));
  cache->FindAddresses();
  const RowAddress row = cache->views().Row(29, 2, 999);
  EXPECT_EQ(row.key[0], std::byte(kept[999] & 0x7f));
  EXPECT_EQ(row.value[127], std::byte(kept[999] >> 7));

  cache.reset();
  EXPECT_EQ((*arena)->stats().reserved_bytes, 0u);
  ExpectResident(base_bytes, 0);
}

TEST(MemoryTest, ResidentMemoryStaysFlatWhileEveryTokenReplacesOne) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  auto arena =
      Arena::Create({.page_bytes = kSmolLm2Format.PageBytes(), .cap_bytes = size_t{1} << 30});
  ASSERT_TRUE(arena.ok());
  SequenceCache cache(kSmolLm2Shape, kSmolLm2Format, Granularity::kHead, {.t0 = arena->get()});
  ASSERT_TRUE(cache.Append(0, 1024).ok());
  WriteNewRows(&cache, 0, 1024);
  std::mt19937 random(6);
  const auto step = [&](Position position) {
    ASSERT_TRUE(cache.Append(position, 1).ok());
    WriteNewRows(&cache, 1024, 1025);
    for (int group = 0; group < cache.layout().num_groups(); ++group) {
      cache.Remove(group, std::vector<uint32_t>{static_cast<uint32_t>(random() % 1025)});
    }
    cache.Compact(1 << 20);
    (*arena)->Compact(4 << 20);
  };
  for (Position i = 0; i < 200; ++i) step(1024 + i);
  const size_t resident_bytes = MeasureProcess().resident_bytes;
  const size_t table_bytes = cache.accounting().table_bytes;
  for (Position i = 200; i < 2000; ++i) step(1024 + i);
  EXPECT_NEAR(static_cast<double>(MeasureProcess().resident_bytes),
              static_cast<double>(resident_bytes), 4 << 20);
  EXPECT_LE(cache.accounting().table_bytes, table_bytes + (64 << 10));
  EXPECT_LE((*arena)->stats().peak_reserved_bytes, size_t{90 * 18} * kSmolLm2Format.PageBytes());
}

TEST(MemoryTest, TablesThatTheSystemRefusesAreAnErrorAndChangeNothing) {
  if (kAddressSanitizer) GTEST_SKIP() << "this sanitizer ends a program that gets no memory";
  if (!MemoryLimitsHold()) EBB_SKIP_WITHOUT("memory_limits") << "RLIMIT_AS has no effect";
  // Two bytes for a key and two for a value: the tables of a row are larger than the row.
  const PageFormat format{.type = RowType::kF16, .head_dim = 1};
  const ModelShape shape{.num_layers = 1, .num_q_heads = 1, .num_kv_heads = 1, .head_dim = 1};
  auto arena = Arena::Create({.page_bytes = format.PageBytes(), .cap_bytes = size_t{1} << 30});
  ASSERT_TRUE(arena.ok());
  SequenceCache cache(shape, format, Granularity::kToken, {.t0 = arena->get()});
  ASSERT_TRUE(cache.Append(0, 10).ok());
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = MeasureProcess().virtual_bytes + (120 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const Status status = cache.Append(10, 16 << 20);  // 64 MiB of rows, 160 MiB of tables
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old_limit), 0);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("no memory for the token tables"));
  EXPECT_EQ((*arena)->stats().reserved_bytes, kExtentBytes);
  EXPECT_EQ((*arena)->stats().num_pages, 1u);
  EXPECT_EQ(cache.tables().max_rows(), 10u);
  EXPECT_TRUE(cache.Validate().ok());
  EXPECT_TRUE(cache.Append(10, 1000).ok());
}

}  // namespace
}  // namespace ebb
