#include "src/rows/arena.h"

#include <sys/resource.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"
#include "tests/support/process_memory.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr size_t kPageBytes = 64 << 10;
constexpr size_t kPagesPerExtent = kExtentBytes / kPageBytes;

std::unique_ptr<Arena> MakeArena(size_t page_bytes, size_t num_extents) {
  auto arena = Arena::Create({.page_bytes = page_bytes, .cap_bytes = num_extents * kExtentBytes});
  EXPECT_TRUE(arena.ok()) << arena.status().ToString();
  return *std::move(arena);
}

// Owners takes pages, fills and checks them, and frees them when it is destroyed.
class Owners {
 public:
  explicit Owners(Arena* arena) : arena_(arena) {}
  Owners(const Owners&) = delete;
  Owners& operator=(const Owners&) = delete;
  ~Owners() {
    for (const PageId page : pages_) {
      if (page != kNoPage) arena_->Release(page);
    }
  }

  Status Add() {
    pages_.push_back(kNoPage);
    return arena_->Allocate(&pages_.back());
  }
  void AddMany(size_t num) {
    for (size_t i = 0; i < num; ++i) ASSERT_TRUE(Add().ok());
  }
  void Free(size_t i) { arena_->Release(std::exchange(pages_[i], kNoPage)); }
  [[nodiscard]] bool Has(size_t i) const { return pages_[i] != kNoPage; }
  [[nodiscard]] PageId Id(size_t i) const { return pages_[i]; }
  [[nodiscard]] std::byte* operator[](size_t i) const { return arena_->Address(pages_[i]); }
  [[nodiscard]] size_t size() const { return pages_.size(); }

  void Write(size_t i) { std::memset((*this)[i], Pattern(i), arena_->page_bytes()); }
  [[nodiscard]] bool HoldsWhatWasWritten(size_t i) const {
    const std::byte* page = (*this)[i];  // compares with itself shifted by a byte: all are equal
    return page[0] == std::byte{Pattern(i)} &&
           std::memcmp(page, page + 1, arena_->page_bytes() - 1) == 0;
  }

 private:
  static unsigned char Pattern(size_t i) { return static_cast<unsigned char>(1 + i * 37 % 251); }

  Arena* arena_;
  std::vector<PageId> pages_;
};

TEST(ArenaTest, CreateRefusesPageSizesThatDoNotFit) {
  for (const size_t page_bytes : {size_t{0}, size_t{32}, size_t{100}, kExtentBytes + 64}) {
    const auto arena = Arena::Create({.page_bytes = page_bytes, .cap_bytes = kExtentBytes});
    ASSERT_FALSE(arena.ok()) << page_bytes;
    EXPECT_EQ(arena.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(arena.status().message(), HasSubstr("multiple of 64 bytes"));
  }
}

TEST(ArenaTest, CreateRefusesACapSmallerThanOneExtent) {
  const auto arena = Arena::Create({.page_bytes = 64, .cap_bytes = kExtentBytes - 1});
  ASSERT_FALSE(arena.ok());
  EXPECT_EQ(arena.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(arena.status().message(), HasSubstr("at least 2097152 bytes; got 2097151"));
}

TEST(ArenaTest, MapsNothingBeforeItIsAsked) {
  const auto arena = MakeArena(kPageBytes, 4);
  EXPECT_EQ(arena->stats().reserved_bytes, 0u);
  EXPECT_EQ(arena->page_bytes(), kPageBytes);
  EXPECT_EQ(arena->cap_bytes(), 4 * kExtentBytes);
}

TEST(ArenaTest, ExtentsAreAlignedForHugePages) {
  const auto arena = MakeArena(kExtentBytes, 5);
  Owners owners(arena.get());
  owners.AddMany(5);
  for (size_t i = 0; i < owners.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(owners[i]) % kExtentBytes, 0u);
  }
}

TEST(ArenaTest, PagesAreAlignedDistinctAndKeepTheirContents) {
  // Pages of 20,480 bytes do not divide an extent, whose last bytes stay unused.
  for (const size_t page_bytes : {size_t{64}, size_t{20480}, kPageBytes, kExtentBytes}) {
    const size_t per_extent = kExtentBytes / page_bytes;
    const auto arena = MakeArena(page_bytes, 3);
    Owners owners(arena.get());
    owners.AddMany(2 * per_extent + 1);
    std::set<std::byte*> addresses;
    for (size_t i = 0; i < owners.size(); ++i) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(owners[i]) % 64, 0u);
      EXPECT_TRUE(addresses.insert(owners[i]).second);
      owners.Write(i);
    }
    for (size_t i = 0; i < owners.size(); ++i) ASSERT_TRUE(owners.HoldsWhatWasWritten(i));
    EXPECT_EQ(arena->stats().reserved_bytes, 3 * kExtentBytes);
    EXPECT_EQ(arena->stats().used_bytes, owners.size() * page_bytes);
    EXPECT_TRUE(arena->Validate().ok());
  }
}

TEST(ArenaTest, TheCapIsHardAndReachingItChangesNothing) {
  const auto arena = MakeArena(kPageBytes, 2);
  Owners owners(arena.get());
  owners.AddMany(2 * kPagesPerExtent - 1);
  const ArenaStats before = arena->stats();
  const Status reserved = arena->Reserve(2);
  EXPECT_EQ(reserved.code(), StatusCode::kT0Full);
  EXPECT_THAT(reserved.message(), HasSubstr("4 MiB of its cap of 4 MiB are mapped and "
                                            "1 pages are free"));
  EXPECT_EQ(arena->stats().reserved_bytes, before.reserved_bytes);
  EXPECT_TRUE(owners.Add().ok());
  const Status status = owners.Add();
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_FALSE(owners.Has(owners.size() - 1));
  EXPECT_EQ(arena->stats().num_pages, 2 * kPagesPerExtent);
  EXPECT_EQ(arena->stats().reserved_bytes, 2 * kExtentBytes);
  EXPECT_TRUE(arena->Validate().ok());
}

TEST(ArenaTest, ACapThatIsNoMultipleOfExtentsRoundsDown) {
  auto arena =
      Arena::Create({.page_bytes = kPageBytes, .cap_bytes = 2 * kExtentBytes - kPageBytes});
  ASSERT_TRUE(arena.ok());
  EXPECT_TRUE((*arena)->Reserve(kPagesPerExtent).ok());
  EXPECT_EQ((*arena)->Reserve(kPagesPerExtent + 1).code(), StatusCode::kT0Full);
}

TEST(ArenaTest, ASharedCapLimitsSeveralArenasTogether) {
  const auto cap = std::make_shared<SharedCap>(SharedCap{.cap_bytes = 3 * kExtentBytes});
  const auto make = [&](size_t page_bytes) {
    return *Arena::Create(
        {.page_bytes = page_bytes, .cap_bytes = 3 * kExtentBytes, .shared_cap = cap});
  };
  const auto large = make(kPageBytes), small = make(kPageBytes / 2);
  {
    Owners in_large(large.get()), in_small(small.get());
    in_large.AddMany(kPagesPerExtent);
    in_small.AddMany(2 * kPagesPerExtent + 1);  // takes one extent and a page of the next
    EXPECT_EQ(cap->mapped_bytes, 3 * kExtentBytes);
    EXPECT_EQ(in_large.Add().code(), StatusCode::kT0Full);
    in_small.AddMany(2 * kPagesPerExtent - 1);  // takes the rest of that extent
    EXPECT_EQ(in_small.Add().code(), StatusCode::kT0Full);
    for (size_t i = 0; i < kPagesPerExtent; ++i) in_large.Free(i);
    large->Compact(0);
    EXPECT_TRUE(in_small.Add().ok());
  }
  large->Compact(0);
  small->Compact(0);
  EXPECT_EQ(cap->mapped_bytes, 0u);
}

TEST(ArenaTest, WhatWasReservedCanBeAllocatedWhateverIsFreedMeanwhile) {
  const auto arena = MakeArena(kPageBytes, 6);
  Owners others(arena.get());
  others.AddMany(kPagesPerExtent);
  ASSERT_TRUE(arena->Reserve(5 * kPagesPerExtent).ok());
  EXPECT_EQ(arena->Reserve(1).code(), StatusCode::kT0Full);
  EXPECT_EQ(others.Add().code(), StatusCode::kT0Full);
  const size_t reserved_bytes = arena->stats().reserved_bytes;
  for (size_t i = 0; i < kPagesPerExtent; ++i) others.Free(i);
  EXPECT_GE(arena->stats().reserved_bytes, reserved_bytes - kExtentBytes);
  ASSERT_TRUE(arena->Validate().ok());
  const size_t before = arena->stats().reserved_bytes;
  std::vector<PageId> pages(5 * kPagesPerExtent);
  for (PageId& page : pages) page = arena->Take();
  EXPECT_EQ(arena->stats().reserved_bytes, before);
  for (const PageId page : pages) arena->Release(page);
}

TEST(ArenaTest, AReservationStaysUntilItEnds) {
  const auto arena = MakeArena(kPageBytes, 4);
  ASSERT_TRUE(arena->Reserve(3 * kPagesPerExtent).ok());
  ASSERT_TRUE(arena->Reserve(kPagesPerExtent).ok());
  EXPECT_EQ(arena->stats().reserved_bytes, 4 * kExtentBytes);
  EXPECT_EQ(arena->Compact(4 * kExtentBytes), 0u);
  EXPECT_EQ(arena->stats().reserved_bytes, 4 * kExtentBytes);
  arena->EndReservation(kPagesPerExtent);
  EXPECT_EQ(arena->stats().reserved_bytes, 3 * kExtentBytes);
  arena->EndReservation(3 * kPagesPerExtent);
  EXPECT_EQ(arena->stats().reserved_bytes, 0u);
  EXPECT_EQ(arena->stats().peak_reserved_bytes, 4 * kExtentBytes);
  EXPECT_TRUE(arena->Validate().ok());
}

TEST(ArenaTest, AtMostOneEmptyExtentStaysMapped) {
  const auto arena = MakeArena(kPageBytes, 4);
  Owners owners(arena.get());
  owners.AddMany(4 * kPagesPerExtent);
  for (size_t i = 0; i < 3 * kPagesPerExtent; ++i) owners.Free(i);
  EXPECT_EQ(arena->stats().reserved_bytes, 2 * kExtentBytes);
  arena->Compact(0);
  EXPECT_EQ(arena->stats().reserved_bytes, kExtentBytes);
  for (size_t i = 3 * kPagesPerExtent; i < 4 * kPagesPerExtent; ++i) owners.Free(i);
  EXPECT_EQ(arena->stats().reserved_bytes, 0u);
  EXPECT_EQ(arena->stats().used_bytes, 0u);
  EXPECT_EQ(arena->stats().peak_reserved_bytes, 4 * kExtentBytes);
  EXPECT_TRUE(arena->Validate().ok());
}

TEST(ArenaTest, NewPagesGoToTheFullestExtentSoThatSparseOnesDrain) {
  const auto arena = MakeArena(kPageBytes, 3);
  Owners owners(arena.get());
  owners.AddMany(2 * kPagesPerExtent);
  for (size_t i = 0; i < kPagesPerExtent - 1; ++i) owners.Free(i);  // leaves 1 page
  for (size_t i = kPagesPerExtent; i < kPagesPerExtent + 4; ++i) owners.Free(i);
  const auto extent_of = [&](size_t i) {
    return reinterpret_cast<uintptr_t>(owners[i]) / kExtentBytes;
  };
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(owners.Add().ok());
    EXPECT_EQ(extent_of(owners.size() - 1), extent_of(2 * kPagesPerExtent - 1));
  }
  owners.Free(kPagesPerExtent - 1);
  EXPECT_EQ(arena->Compact(SIZE_MAX), 0u);
  EXPECT_EQ(arena->stats().reserved_bytes, kExtentBytes);
}

TEST(ArenaTest, CompactFreesEveryExtentThatIsNotNeededAndKeepsContents) {
  const auto arena = MakeArena(kPageBytes, 16);
  Owners owners(arena.get());
  owners.AddMany(16 * kPagesPerExtent);
  std::mt19937 random(7);
  size_t num_pages = owners.size();
  for (size_t i = 0; i < owners.size(); ++i) {
    owners.Write(i);
    if (random() % 4 != 0) {
      owners.Free(i);
      --num_pages;
    }
  }
  EXPECT_EQ(arena->stats().reserved_bytes, 16 * kExtentBytes);
  const size_t copied = arena->Compact(SIZE_MAX);
  EXPECT_GT(copied, 0u);
  EXPECT_LE(copied, num_pages * kPageBytes);
  EXPECT_EQ(arena->stats().bytes_compacted, copied);
  const size_t needed = (num_pages + kPagesPerExtent - 1) / kPagesPerExtent;
  EXPECT_EQ(arena->stats().reserved_bytes, needed * kExtentBytes);
  for (size_t i = 0; i < owners.size(); ++i) {
    if (owners.Has(i)) {
      ASSERT_TRUE(owners.HoldsWhatWasWritten(i));
    }
  }
  EXPECT_TRUE(arena->Validate().ok());
  EXPECT_EQ(arena->Compact(SIZE_MAX), 0u);
}

TEST(ArenaTest, CompactStaysWithinItsBudgetAndGoesOnLater) {
  const auto arena = MakeArena(kPageBytes, 2);
  Owners owners(arena.get());
  owners.AddMany(2 * kPagesPerExtent);
  for (size_t i = 0; i < 2 * kPagesPerExtent; ++i) {
    owners.Write(i);
    if (i % 4 != 0) owners.Free(i);
  }
  EXPECT_EQ(arena->Compact(kPageBytes - 1), 0u);
  size_t copied = 0;
  int num_calls = 0;
  while (arena->stats().reserved_bytes > kExtentBytes) {
    ASSERT_LT(num_calls++, 100);
    const size_t now = arena->Compact(3 * kPageBytes + 1);
    EXPECT_LE(now, 3 * kPageBytes);
    copied += now;
    ASSERT_TRUE(arena->Validate().ok());
  }
  EXPECT_EQ(copied, kPagesPerExtent / 4 * kPageBytes);
  for (size_t i = 0; i < owners.size(); i += 4) ASSERT_TRUE(owners.HoldsWhatWasWritten(i));
}

TEST(ArenaTest, APageGoesWithItsLastHolder) {
  const auto arena = MakeArena(kPageBytes, 2);
  Owners owners(arena.get());
  owners.AddMany(2);
  owners.Write(1);
  arena->Share(owners.Id(1));
  arena->Share(owners.Id(1));
  EXPECT_EQ(arena->num_holders(owners.Id(1)), 3u);
  EXPECT_EQ(arena->stats().num_pages, 2u);
  arena->Release(owners.Id(1));
  arena->Release(owners.Id(1));
  EXPECT_EQ(arena->num_holders(owners.Id(1)), 1u);
  EXPECT_EQ(arena->stats().num_pages, 2u);
  EXPECT_TRUE(owners.HoldsWhatWasWritten(1));
  owners.Free(1);
  EXPECT_EQ(arena->stats().num_pages, 1u);
  EXPECT_TRUE(arena->Validate().ok());
}

TEST(ArenaTest, APageThatMovesKeepsItsIdAndItsHolders) {
  const auto arena = MakeArena(kPageBytes, 2);
  Owners owners(arena.get());
  owners.AddMany(kPagesPerExtent + 1);
  const size_t last = kPagesPerExtent;
  owners.Write(last);
  arena->Share(owners.Id(last));
  owners.Free(0);
  const std::byte* const before = owners[last];
  const uint64_t generation = arena->generation();
  EXPECT_EQ(arena->Compact(SIZE_MAX), kPageBytes);
  EXPECT_GT(arena->generation(), generation);
  EXPECT_NE(owners[last], before);
  EXPECT_TRUE(owners.HoldsWhatWasWritten(last));
  EXPECT_EQ(arena->num_holders(owners.Id(last)), 2u);
  arena->Release(owners.Id(last));
  EXPECT_EQ(arena->Compact(SIZE_MAX), 0u);
  EXPECT_EQ(arena->generation(), generation + 1);
}

TEST(ArenaTest, AFloorIsKeptWhileOthersTakeTheRest) {
  const auto arena = MakeArena(kExtentBytes / 8, 2);  // an extent has 16 pages
  PageHolder holder, other;
  ExpectOk(arena->SetFloor(&holder, 6));
  EXPECT_EQ(arena->stats().pledged_bytes, 6 * kExtentBytes / 8);
  EXPECT_EQ(arena->stats().reserved_bytes, 0u);
  std::vector<PageId> pages(10);
  for (PageId& page : pages) ExpectOk(arena->Allocate(&page, &other));
  PageId refused = kNoPage;
  for (PageHolder* who : {&other, static_cast<PageHolder*>(nullptr)}) {
    const Status status = arena->Allocate(&refused, who);
    EXPECT_EQ(status.code(), StatusCode::kT0Full);
    EXPECT_THAT(status.message(), HasSubstr("beside what is kept for other sequences"));
  }
  std::vector<PageId> own(6);
  ExpectOk(arena->Reserve(6, &holder));
  for (PageId& page : own) page = arena->Take(&holder);
  EXPECT_EQ(arena->stats().pledged_bytes, 0u);
  EXPECT_FALSE(arena->Allocate(&refused, &holder).ok());
  // A page that the holder releases counts for its floor again.
  arena->Release(own.back(), &holder);
  own.pop_back();
  EXPECT_FALSE(arena->Allocate(&refused, &other).ok());
  ExpectOk(arena->SetFloor(&holder, 0));
  ExpectOk(arena->Allocate(&refused, &other));
  pages.push_back(refused);
  for (const PageId page : pages) arena->Release(page, &other);
  for (const PageId page : own) arena->Release(page, &holder);
  ExpectOk(arena->Validate());
}

TEST(ArenaTest, AFloorThatTheCapDoesNotHoldIsRefusedAndChangesNothing) {
  const auto arena = MakeArena(kExtentBytes / 8, 2);
  PageHolder holder, other;
  ExpectOk(arena->SetFloor(&holder, 10));
  PageId page = kNoPage;
  ExpectOk(arena->Allocate(&page, &other));
  const Status refused = arena->SetFloor(&other, 8);
  EXPECT_EQ(refused.code(), StatusCode::kT0Full);
  EXPECT_THAT(refused.message(), HasSubstr("a floor of 8 pages"));
  EXPECT_EQ(other.floor, 0u);
  EXPECT_EQ(arena->SetFloor(&holder, 16).code(), StatusCode::kT0Full);
  EXPECT_EQ(holder.floor, 10u);
  EXPECT_EQ(arena->stats().pledged_bytes, 10 * kExtentBytes / 8);
  // The floor includes the page that the holder has.
  ExpectOk(arena->SetFloor(&other, 6));
  arena->Release(page, &other);
}

TEST(ArenaTest, ExtentsCutNoPage) {
  EXPECT_EQ(Arena::BytesFor(0, 16384), 0u);
  EXPECT_EQ(Arena::BytesFor(128, 16384), kExtentBytes);
  EXPECT_EQ(Arena::BytesFor(129, 16384), 2 * kExtentBytes);
  // A page of int8 rows of 132 bytes takes 8,448 bytes; an extent has 248 of them.
  EXPECT_EQ(Arena::BytesFor(248, 8448), kExtentBytes);
  EXPECT_EQ(Arena::BytesFor(249, 8448), 2 * kExtentBytes);
}

TEST(ArenaTest, RandomHoldersGetTheirFloorsAlways) {
  const auto arena = MakeArena(kExtentBytes / 8, 8);  // 64 pages under the cap
  std::array<PageHolder, 5> holders;
  std::array<std::vector<PageId>, 5> pages;
  std::mt19937 random(5);
  int num_refused = 0;
  for (int step = 0; step < 20000; ++step) {
    const size_t who = random() % holders.size();
    PageHolder& holder = holders[who];
    switch (random() % 8) {
      case 0:
        if (!arena->SetFloor(&holder, random() % 24).ok()) ++num_refused;
        break;
      case 1:
      case 2:
        if (pages[who].empty()) break;
        arena->Release(pages[who].back(), &holder);
        pages[who].pop_back();
        break;
      default: {
        PageId page = kNoPage;
        const bool is_kept = holder.num_pages < holder.floor;
        const bool is_given = arena->Allocate(&page, &holder).ok();
        ASSERT_TRUE(is_given || !is_kept) << step;
        if (is_given) pages[who].push_back(page);
        if (!is_given) ++num_refused;
      }
    }
    size_t num_pledged = 0, num_pages = 0;
    for (size_t i = 0; i < holders.size(); ++i) {
      ASSERT_EQ(holders[i].num_pages, pages[i].size());
      num_pledged += holders[i].NumPledged();
      num_pages += pages[i].size();
    }
    ASSERT_EQ(arena->stats().pledged_bytes, num_pledged * kExtentBytes / 8);
    ASSERT_LE(num_pages + num_pledged, 64u);
    if (step % 40 == 0) arena->Compact(kExtentBytes);
  }
  EXPECT_GT(num_refused, 100);
  for (size_t i = 0; i < holders.size(); ++i) {
    for (const PageId page : pages[i]) arena->Release(page, &holders[i]);
  }
}

TEST(ArenaTest, AMappingThatTheSystemRefusesIsAnErrorAndChangesNothing) {
  if (!MemoryLimitsHold()) EBB_SKIP_WITHOUT("memory_limits") << "RLIMIT_AS has no effect";
  auto arena = MakeArena(kPageBytes, size_t{1} << 40);
  Owners owners(arena.get());
  owners.AddMany(1);
  rlimit old_limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &old_limit), 0);
  rlimit limit = old_limit;
  limit.rlim_cur = MeasureProcess().virtual_bytes + (64 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const Status status = arena->Reserve(1024 * kPagesPerExtent);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &old_limit), 0);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_THAT(status.message(), HasSubstr("the system refused another 2 MiB"));
  // Either mapping an extent fails first, or allocating the arena's records for it.
  EXPECT_THAT(status.message(),
              AnyOf(HasSubstr("Cannot allocate memory"), HasSubstr("no memory for its records")));
  EXPECT_EQ(arena->stats().reserved_bytes, kExtentBytes);
  EXPECT_TRUE(arena->Validate().ok());
  EXPECT_TRUE(arena->Reserve(kPagesPerExtent).ok());
}

TEST(ArenaTest, RandomUseKeepsContentsAndTheCapForEveryPageSize) {
  for (const size_t page_bytes : {size_t{16384}, size_t{20480}, size_t{786432}, kExtentBytes}) {
    SCOPED_TRACE(page_bytes);
    const auto arena = MakeArena(page_bytes, 6);
    Owners owners(arena.get());
    std::mt19937 random(static_cast<uint32_t>(page_bytes));
    std::vector<size_t> owned;
    for (int step = 0; step < 1500; ++step) {
      const bool grows = step / 300 % 2 == 0;
      if (random() % 8 < (grows ? 6 : 2)) {
        if (owners.Add().ok()) {
          owned.push_back(owners.size() - 1);
          owners.Write(owned.back());
        } else {
          ASSERT_EQ(arena->stats().reserved_bytes, 6 * kExtentBytes);
        }
      } else if (!owned.empty()) {
        std::swap(owned[random() % owned.size()], owned.back());
        ASSERT_TRUE(owners.HoldsWhatWasWritten(owned.back()));
        owners.Free(owned.back());
        owned.pop_back();
      }
      if (random() % 50 == 0) arena->Compact(random() % (2 * kExtentBytes));
      ASSERT_LE(arena->stats().reserved_bytes, arena->cap_bytes());
      ASSERT_EQ(arena->stats().num_pages, owned.size());
      if (step % 100 == 0) {
        ASSERT_TRUE(arena->Validate().ok()) << arena->Validate().ToString();
      }
    }
  }
}

}  // namespace
}  // namespace ebb
