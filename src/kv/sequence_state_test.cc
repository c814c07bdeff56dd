// Faults while a cache is saved to a file or loaded from one. The property test of tiers_test.cc
// checks that it comes back right.
#include "src/kv/sequence_state.h"

#include <cerrno>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kRows = 300;

// Rows in all tiers, groups that differ.
void Live(TieredSequence* s) {
  ExpectOk(s->Append(kRows));
  std::vector<RowMove> moves;
  for (uint32_t row = 0; row < kRows; ++row) moves.push_back({row, static_cast<Tier>(row % 3)});
  ExpectOk(s->Move(0, moves));
  s->Remove(static_cast<int>(s->groups().size()) - 1, {3, 4, 5, 100});
}

struct Saved {
  StateWriter tables;
  std::vector<RowBytes> pages;
};

Saved Save(SequenceCache* cache) {
  Saved saved;
  EXPECT_TRUE(SequenceState::SaveTables(*cache, &saved.tables).ok());
  ExpectOk(SequenceState::SavePages(cache, [&](const StatePage&, auto rows) {
    saved.pages.emplace_back(rows.begin(), rows.end());
    return OkStatus();
  }));
  return saved;
}

Status Load(const Saved& saved, Position end, SequenceCache* cache) {
  StateReader from(saved.tables.bytes(), "the tables");
  const auto check = [&](const StatePages& pages) {
    EXPECT_EQ(pages.num_pages, saved.pages.size());
    return OkStatus();
  };
  EBB_RETURN_IF_ERROR(SequenceState::LoadTables(end, check, &from, cache));
  size_t next = 0;
  return SequenceState::LoadPages(cache, [&](const StatePage&, auto rows) {
    std::ranges::copy(saved.pages[next++], rows.begin());
    return OkStatus();
  });
}

TEST(SequenceState, AReadThatFailsEndsTheSaveAndNothingElse) {
  DiskFault fault;
  TiersForTest tiers({.faults = [&](const DiskRequest& request) {
    return request.call == DiskCall::kRead ? fault : DiskFault{};
  }});
  {
    TieredSequence sequence(tiers, Granularity::kHead, 1);
    Live(&sequence);
    fault = {.error = EIO};
    const Status status = SequenceState::SavePages(
        &sequence.cache(), [](const StatePage&, auto) { return OkStatus(); });
    EXPECT_EQ(status.code(), StatusCode::kIo);
    fault = {};
    ExpectOk(sequence.Append(10));
    sequence.ExpectLists();
    sequence.ExpectBytes();
  }
  tiers.ExpectEmpty();
}

TEST(SequenceState, AWriteThatFailsEndsTheLoadAndEverythingIsGivenBack) {
  DiskFault fault;
  TiersForTest tiers({.faults = [&](const DiskRequest& request) {
    return request.call == DiskCall::kWrite ? fault : DiskFault{};
  }});
  {
    TieredSequence sequence(tiers, Granularity::kLayer, 1);
    Live(&sequence);
    const Saved saved = Save(&sequence.cache());
    fault = {.error = ENOSPC};
    {
      SequenceCache cache(kTiersShape, kTiersFormat, Granularity::kLayer, tiers.stores);
      EXPECT_EQ(Load(saved, sequence.next(), &cache).code(), StatusCode::kStorageFull);
    }
    fault = {};
    SequenceCache cache(kTiersShape, kTiersFormat, Granularity::kLayer, tiers.stores);
    ExpectOk(Load(saved, sequence.next(), &cache));
    ExpectOk(cache.Validate());
    sequence.ExpectBytes();
  }
  tiers.ExpectEmpty();
}

TEST(SequenceState, ATierWithoutRoomEndsTheLoadAndEverythingIsGivenBack) {
  TiersForTest large({.t1 = T1Place::kHost, .t1_cap_bytes = size_t{64} << 20});
  TieredSequence sequence(large, Granularity::kToken, 1);
  for (int i = 0; i < 28; ++i) ExpectOk(sequence.Append(700));
  std::vector<RowMove> moves;
  for (uint32_t row = 0; row < 19600; ++row) moves.push_back({row, static_cast<Tier>(row % 3)});
  ExpectOk(sequence.Move(0, moves));
  const Saved saved = Save(&sequence.cache());
  for (const bool t0_is_small : {true, false}) {
    TiersOptions options = {.t1 = T1Place::kHost, .t1_cap_bytes = size_t{64} << 20};
    (t0_is_small ? options.t0_cap_bytes : options.t1_cap_bytes) = kExtentBytes;
    TiersForTest tiers(options);
    {
      SequenceCache cache(kTiersShape, kTiersFormat, Granularity::kToken, tiers.stores);
      EXPECT_EQ(Load(saved, sequence.next(), &cache).code(),
                t0_is_small ? StatusCode::kT0Full : StatusCode::kT1Full);
    }
    tiers.ExpectEmpty();
  }
}

TEST(SequenceState, RowsOfATierThatIsMissingAreRefused) {
  TiersForTest tiers({.t1 = T1Place::kHost, .t1_cap_bytes = size_t{64} << 20});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  Live(&sequence);
  const Saved saved = Save(&sequence.cache());
  CacheStores only_t0 = tiers.stores;
  only_t0.t1 = nullptr;
  SequenceCache without_t1(kTiersShape, kTiersFormat, Granularity::kToken, only_t0);
  EXPECT_THAT(Load(saved, kRows, &without_t1).message(), HasSubstr("T1, which is none"));
  only_t0 = tiers.stores;
  only_t0.t2 = nullptr;
  SequenceCache without_t2(kTiersShape, kTiersFormat, Granularity::kToken, only_t0);
  EXPECT_THAT(Load(saved, kRows, &without_t2).message(), HasSubstr("T2, which is none"));
}

TEST(SequenceState, PagesThatAreRefusedTakeNoMemory) {
  TiersForTest tiers({.t1 = T1Place::kHost, .t1_cap_bytes = size_t{64} << 20});
  StateWriter tables;
  {
    TieredSequence sequence(tiers, Granularity::kToken, 1);
    Live(&sequence);
    ASSERT_TRUE(SequenceState::SaveTables(sequence.cache(), &tables).ok());
  }
  const size_t before = tiers.stores.t0->stats().reserved_bytes;
  SequenceCache cache(kTiersShape, kTiersFormat, Granularity::kToken, tiers.stores);
  StateReader from(tables.bytes(), "the tables");
  const auto refuse = [](const StatePages& pages) {
    return Corrupt(std::to_string(pages.num_pages) + " pages");
  };
  EXPECT_THAT(SequenceState::LoadTables(kRows, refuse, &from, &cache).message(),
              HasSubstr(" pages"));
  EXPECT_EQ(tiers.stores.t0->stats().num_pages, 0u);
  EXPECT_EQ(tiers.stores.t0->stats().reserved_bytes, before);
}

TEST(SequenceState, APositionBeyondTheSequenceIsRefused) {
  TiersForTest tiers({.t1 = T1Place::kHost, .t1_cap_bytes = size_t{64} << 20});
  TieredSequence sequence(tiers, Granularity::kToken, 1);
  Live(&sequence);
  const Saved saved = Save(&sequence.cache());
  SequenceCache cache(kTiersShape, kTiersFormat, Granularity::kToken, tiers.stores);
  EXPECT_EQ(Load(saved, kRows - 1, &cache).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ebb
