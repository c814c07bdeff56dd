#include "src/rows/t1_page_cache.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/expect_ok.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr size_t kNumPages = 400;
constexpr size_t kCachedPageBytes = 64 << 10;  // a chunk of memory has 32

class T1PageCacheTest : public testing::Test {
 protected:
  T1PageCacheTest() {
    for (size_t i = 0; i < kNumPages; ++i) Write(pages_[i], pages_[i]);
  }
  void Write(uint32_t page, uint64_t contents) {
    const PageMemory memory(1, kCachedPageBytes);
    memory.Fill(0, contents);
    const PageIo request = {.page = page, .memory = memory[0]};
    ExpectOk(WriteNow(file_.get(), {&request, 1}));
  }
  static bool Holds(const std::byte* address, uint64_t contents) {
    const PageMemory expected(1, kCachedPageBytes);
    expected.Fill(0, contents);
    return std::equal(address, address + kCachedPageBytes, expected[0]);
  }
  Status Begin(size_t capacity) {
    return cache_.Begin({.capacity = capacity, .most_of_layer = 100});
  }
  // Reads these pages as one layer, and checks their contents.
  void ReadLayer(const std::vector<uint32_t>& pages) {
    std::vector<std::byte*> addresses(pages.size());
    cache_.BeginLayer();
    for (size_t i = 0; i < pages.size(); ++i) cache_.Want(pages[i], &addresses[i]);
    ExpectOk(cache_.Read());
    for (size_t i = 0; i < pages.size(); ++i) {
      ASSERT_TRUE(Holds(addresses[i], pages[i])) << pages[i];
    }
  }
  // Runs a step of two layers, in which the second foresees Pages(60, 20).
  void ForeseeInAStep(size_t capacity) {
    ExpectOk(Begin(capacity));
    ReadLayer(Pages(0, 10));
    cache_.BeginLayer();
    std::byte* address = nullptr;
    cache_.Want(pages_[50], &address);
    for (const uint32_t page : Pages(60, 20)) cache_.Foresee(page);
    ExpectOk(cache_.Read());
    ExpectOk(cache_.End());
  }
  std::vector<uint32_t> Pages(size_t first, size_t count) const {
    return {pages_.begin() + first, pages_.begin() + first + count};
  }
  int64_t MissesOf(const std::vector<std::vector<uint32_t>>& layers) {
    const int64_t before = cache_.stats().misses;
    for (const auto& layer : layers) ReadLayer(layer);
    return cache_.stats().misses - before;
  }

  TempFolder folder_;
  FaultHook fault_;
  std::unique_ptr<PageFile> file_ = *PageFile::Create(
      {.folder = folder_.File(""),
       .page_bytes = kCachedPageBytes,
       .faults = [this](const auto& request) { return fault_ ? fault_(request) : DiskFault{}; }});
  std::vector<uint32_t> pages_ = AllocateNow(file_.get(), 0, kNumPages);
  T1Edits edits_{file_.get(), size_t{4} << 20};
  T1PageCache cache_{std::make_unique<FilePageLoader>(file_.get(), &edits_)};
};

TEST_F(T1PageCacheTest, ReadsAPageOnceWhileItHasRoom) {
  const std::vector<std::vector<uint32_t>> layers = {Pages(0, 20), Pages(20, 30), Pages(50, 14)};
  for (int step = 0; step < 3; ++step) {
    ExpectOk(Begin(64));
    EXPECT_EQ(MissesOf(layers), step == 0 ? 64 : 0);
    ExpectOk(cache_.End());
  }
  EXPECT_EQ(cache_.stats().hits, 128);
}

// Plain LRU would miss every page of a cycle that is a little longer than the cache.
TEST_F(T1PageCacheTest, KeepsMostOfACycleThatIsLongerThanItself) {
  const std::vector<std::vector<uint32_t>> layers = {Pages(0, 40), Pages(40, 40)};
  for (int step = 0; step < 4; ++step) {
    ExpectOk(Begin(64));
    EXPECT_EQ(MissesOf(layers), step == 0 ? 80 : 16);
    ExpectOk(cache_.End());
  }
}

TEST_F(T1PageCacheTest, PagesThatTheLastStepDidNotUseGoFirst) {
  const auto step = [&](const std::vector<std::vector<uint32_t>>& layers) {
    ExpectOk(Begin(32));
    const int64_t misses = MissesOf(layers);
    ExpectOk(cache_.End());
    return misses;
  };
  EXPECT_EQ(step({Pages(0, 32)}), 32);
  EXPECT_EQ(step({Pages(0, 16)}), 0);     // makes the other pages older
  EXPECT_EQ(step({Pages(100, 20)}), 20);  // 16 of these evict the older pages
  EXPECT_EQ(step({Pages(100, 16), Pages(0, 16)}), 0);
}

TEST_F(T1PageCacheTest, SpilledPagesAreReadAheadOfTheLayerThatSpilledThem) {
  for (int step = 0; step < 3; ++step) {
    ExpectOk(Begin(0));
    ReadLayer(Pages(0, 40));
    // Misses are the first layer's own pages and those read ahead for the second one.
    EXPECT_EQ(cache_.stats().misses, 120 * step + (step == 0 ? 40 : 80));
    ReadLayer(Pages(50, 40));
    ReadLayer(Pages(100, 40));
    EXPECT_EQ(cache_.stats().misses, 120 * (step + 1));
    ExpectOk(cache_.End());
  }
}

TEST_F(T1PageCacheTest, PagesThatWereReadAheadInVainAreNotReadAheadAgain) {
  const auto step = [&](const std::vector<uint32_t>& second_layer) {
    ExpectOk(Begin(0));
    const int64_t misses = MissesOf({Pages(0, 10), second_layer});
    ExpectOk(cache_.End());
    return misses;
  };
  EXPECT_EQ(step(Pages(50, 10)), 20);
  EXPECT_EQ(step(Pages(100, 10)), 30);  // 10 of them were read ahead in vain
  EXPECT_EQ(step(Pages(100, 10)), 20);
}

// Pages that a layer foresaw in the step before are loaded while the layer before it is read.
TEST_F(T1PageCacheTest, ForeseenPagesAreReadAheadWithRoomAndWithout) {
  for (const size_t capacity : {0, 64}) {
    cache_.Clear();
    ForeseeInAStep(capacity);
    ExpectOk(Begin(capacity));
    const int64_t of_first = capacity == 0 ? 10 : 0;
    EXPECT_EQ(MissesOf({Pages(0, 10)}), of_first + 20);
    EXPECT_EQ(MissesOf({Pages(60, 20)}), 0);
    ExpectOk(cache_.End());
    // No layer has foreseen pages for the next step.
    ExpectOk(Begin(capacity));
    EXPECT_EQ(MissesOf({Pages(0, 10)}), capacity == 0 ? 30 : 0);
    EXPECT_EQ(MissesOf({Pages(200, 10)}), 10);
    ExpectOk(cache_.End());
  }
}

// A dropped page's number may be given to a page of another layer.
TEST_F(T1PageCacheTest, AForeseenPageThatWasDroppedIsNotReadAhead) {
  ForeseeInAStep(64);
  for (const uint32_t page : Pages(60, 5)) cache_.Drop(page);
  ExpectOk(Begin(64));
  EXPECT_EQ(MissesOf({Pages(0, 10)}), 15);
  EXPECT_EQ(MissesOf({Pages(60, 20)}), 5);
  ExpectOk(cache_.End());
}

// Reading ahead fails for a layer that the step does not reach: the step succeeds, and nothing is
// cached.
TEST_F(T1PageCacheTest, PagesWhoseReadingAheadFailedAreReadAgain) {
  ForeseeInAStep(64);
  fault_ = [](const auto&) { return DiskFault{.error = EIO}; };
  ExpectOk(Begin(64));
  ReadLayer(Pages(0, 10));  // all of them are cached
  ExpectOk(cache_.End());
  fault_ = nullptr;
  ExpectOk(Begin(64));
  ReadLayer(Pages(60, 20));
  ExpectOk(cache_.End());
}

TEST_F(T1PageCacheTest, PagesThatAStepWantedAndDidNotReadAreReadLater) {
  ExpectOk(Begin(64));
  cache_.BeginLayer();
  std::byte* address = nullptr;
  for (const uint32_t page : Pages(0, 20)) cache_.Want(page, &address);
  ExpectOk(cache_.End());
  ExpectOk(Begin(64));
  EXPECT_EQ(MissesOf({Pages(0, 20)}), 20);
  ExpectOk(cache_.End());
}

// A layer has foreseen pages, and the step ends before it reaches the layer.
TEST_F(T1PageCacheTest, PagesThatAreReadAheadOfALayerThatDoesNotComeAreReadAgain) {
  ForeseeInAStep(64);
  ExpectOk(Begin(64));
  ReadLayer(Pages(0, 10));
  ExpectOk(cache_.End());
  ExpectOk(Begin(64));
  ReadLayer(Pages(0, 10));
  EXPECT_EQ(MissesOf({Pages(60, 20)}), 0);  // they are read ahead again
  ExpectOk(cache_.End());
}

TEST_F(T1PageCacheTest, WithoutRoomEveryPageIsReadAgain) {
  for (int step = 0; step < 2; ++step) {
    ExpectOk(Begin(0));
    EXPECT_EQ(MissesOf({Pages(0, 100), Pages(50, 100)}), 200);
    ExpectOk(cache_.End());
  }
}

TEST_F(T1PageCacheTest, APageThatIsNamedTwiceIsReadOnce) {
  ExpectOk(Begin(1));
  cache_.BeginLayer();
  std::byte* first[2] = {};
  std::byte* second[2] = {};
  for (size_t i = 0; i < 40; ++i) {  // more pages than a chunk of 32 holds
    cache_.Want(pages_[i], i == 0 ? &first[0] : i == 39 ? &second[0] : &second[1]);
  }
  cache_.Want(pages_[0], &first[1]);
  cache_.Want(pages_[39], &second[1]);
  ExpectOk(cache_.Read());
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(second[0], second[1]);
  EXPECT_TRUE(Holds(second[1], pages_[39]));
  EXPECT_EQ(cache_.stats().misses, 40);
  ExpectOk(cache_.End());
}

TEST_F(T1PageCacheTest, ADroppedPageIsReadAgain) {
  ExpectOk(Begin(10));
  ReadLayer(Pages(0, 10));
  ExpectOk(cache_.End());
  cache_.Drop(pages_[3]);
  cache_.Drop(pages_[200]);  // was never cached
  ExpectOk(Begin(10));
  EXPECT_EQ(MissesOf({Pages(0, 10)}), 1);
  ExpectOk(cache_.End());
}

TEST_F(T1PageCacheTest, ACapacityThatChangesKeepsWhatFits) {
  ExpectOk(Begin(128));
  ReadLayer(Pages(0, 64));
  ExpectOk(cache_.End());
  const size_t full_bytes = cache_.memory_bytes();
  EXPECT_EQ(full_bytes,
            T1PageCache::BytesFor({.capacity = 128, .most_of_layer = 100}, kCachedPageBytes));
  ExpectOk(Begin(256));
  EXPECT_EQ(MissesOf({Pages(0, 64)}), 0);
  ExpectOk(cache_.End());
  ExpectOk(Begin(32));
  EXPECT_LT(cache_.memory_bytes(), full_bytes);
  EXPECT_GE(MissesOf({Pages(0, 64)}), 32);
  ExpectOk(cache_.End());
  cache_.Clear();
  EXPECT_EQ(cache_.memory_bytes(), 0u);
  ExpectOk(Begin(64));
  EXPECT_EQ(MissesOf({Pages(0, 64)}), 64);
  ExpectOk(cache_.End());
}

TEST_F(T1PageCacheTest, AFailedReadIsReportedAndTriedAgain) {
  ExpectOk(Begin(64));
  ReadLayer(Pages(0, 10));
  ExpectOk(cache_.End());
  fault_ = [](const auto&) { return DiskFault{.error = EIO}; };
  ExpectOk(Begin(64));
  std::byte* address = nullptr;
  cache_.BeginLayer();
  cache_.Want(pages_[20], &address);
  EXPECT_EQ(cache_.Read().code(), StatusCode::kIo);
  EXPECT_EQ(cache_.End().code(), StatusCode::kIo);
  fault_ = nullptr;
  ExpectOk(Begin(64));
  EXPECT_EQ(MissesOf({Pages(0, 10), {pages_[20]}}), 1);
  ExpectOk(cache_.End());
}

// Checks random steps against the duty of any cache: every requested page has its contents.
TEST_F(T1PageCacheTest, RandomStepsGetTheContentsOfTheirPages) {
  std::mt19937 random(5);
  for (int step = 0; step < 200; ++step) {
    ExpectOk(Begin(random() % 150));
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<uint32_t> wanted;
      for (size_t i = random() % 60; i > 0; --i) {
        wanted.push_back(pages_[130 * layer + random() % 100]);
      }
      ReadLayer(wanted);
    }
    if (random() % 2 == 0) {  // foresees pages rightly, wrongly or twice
      std::byte* address = nullptr;
      cache_.BeginLayer();
      cache_.Want(pages_[390], &address);
      for (size_t i = random() % 60; i > 0; --i) cache_.Foresee(pages_[390 + random() % 10]);
      ExpectOk(cache_.Read());
      EXPECT_TRUE(Holds(address, pages_[390]));
    }
    ExpectOk(cache_.End());
    if (random() % 4 == 0) cache_.Drop(pages_[random() % kNumPages]);
  }
  EXPECT_GT(cache_.stats().hits, 100);
}

}  // namespace
}  // namespace ebb
