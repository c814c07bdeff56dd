// A disk that fails under T1: the sequence that met it says so, others on the same stores go on.
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

class TierFaultsTest : public testing::Test {
 protected:
  static constexpr int kRows = 300;
  static constexpr std::chrono::milliseconds kLate{20};

  // Two sequences with every second row in T1.
  TierFaultsTest() {
    for (TieredSequence* s : {victim_.get(), bystander_.get()}) {
      ExpectOk(s->Append(kRows));
      ExpectOk(s->Move(0, Every(2, kRows, Tier::kT1)));
      s->ExpectBytes();
    }
  }

  ~TierFaultsTest() override {
    fault_ = {};
    ExpectOthersGoOn();
    victim_.reset();
    bystander_.reset();
    tiers_.ExpectEmpty();
  }

  void ExpectOthersGoOn() {
    fault_ = {};
    ExpectOk(bystander_->Append(70));
    const auto num_rows = static_cast<uint32_t>(bystander_->groups()[0].size());
    ExpectOk(bystander_->Move(0, Every(3, num_rows, Tier::kT1)));
    ExpectOk(bystander_->Move(0, Every(5, num_rows, Tier::kT0)));
    ExpectOk(bystander_->Move(0, Every(7, num_rows, Tier::kT2)));
    bystander_->ExpectLists();
    bystander_->ExpectBytes();
  }

  void ExpectBroken(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
    fault_ = {};
    EXPECT_EQ(victim_->Append(1).ToString(), status.ToString());
    EXPECT_EQ(victim_->cache().Move(0, Every(2, 10, Tier::kT0)).ToString(), status.ToString());
    const Status sound = victim_->cache().Validate();
    EXPECT_TRUE(sound.ok()) << sound.ToString();
  }

  // All calls of one kind, from the `after`-th on.
  void Fail(DiskCall call, DiskFault with, int after = 0) {
    fault_ = [call, with, after](const DiskRequest& request) mutable {
      return request.call == call && after-- <= 0 ? with : DiskFault{};
    };
  }

  FaultHook fault_;
  TiersForTest tiers_{{.faults = [this](const DiskRequest& request) {
    return fault_ ? fault_(request) : DiskFault{};
  }}};
  std::unique_ptr<TieredSequence> victim_ =
      std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 1);
  std::unique_ptr<TieredSequence> bystander_ =
      std::make_unique<TieredSequence>(tiers_, Granularity::kLayer, 2);
};

TEST_F(TierFaultsTest, AStepWhoseReadsFailSaysSoAndTheNextOneIsRight) {
  for (int after = 0; after < 4; ++after) {
    // A move makes rows stale that are read ahead already.
    ExpectOk(victim_->Move(0, {{static_cast<uint32_t>(after), Tier::kT0}}));
    Fail(DiskCall::kRead, {.error = EIO}, after % 3);
    EXPECT_EQ(Stage(victim_->cache()).code(), StatusCode::kIo) << after;
    fault_ = {};
    victim_->ExpectBytes();
  }
  ExpectOk(victim_->Append(1));
  victim_->ExpectLists();
}

TEST_F(TierFaultsTest, AFailedReadAheadIsSaidByTheStepThatNeedsIt) {
  Fail(DiskCall::kRead, {.error = EIO}, kTiersShape.num_layers);
  // The step itself was read ahead in part; its end reads ahead for the next one.
  Status status;
  for (int step = 0; step < 3 && status.ok(); ++step) status = Stage(victim_->cache());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  fault_ = {};
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, AStepThatBeganAndWasGivenUpHarmsNoLaterOne) {
  EXPECT_TRUE(victim_->cache().StageStep().ok());
  {
    const Result<StagedStep> staged = victim_->cache().StageStep();
    ASSERT_TRUE(staged.ok()) << staged.status().ToString();
    staged->StageLayer(0, 0);
  }
  ExpectOk(victim_->Append(5));
  victim_->ExpectBytes();
  EXPECT_TRUE(victim_->cache().StageStep().ok());
  victim_->TruncateTo(10);
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, ShortReadsAndDelaysChangeNothing) {
  Fail(DiskCall::kRead, {.max_bytes = 4096, .delay = std::chrono::microseconds(200)});
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, Every(4, kRows, Tier::kT0)));
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, AMoveThatCannotWriteInTheMiddleBreaksItsSequenceAlone) {
  // More pages than the memory in which they are edited.
  ExpectOk(victim_->Append(12'000));
  Fail(DiskCall::kWrite, {.error = EIO});
  ExpectBroken(victim_->cache().Move(0, Every(1, 12'000, Tier::kT1)));
}

TEST_F(TierFaultsTest, AWriteThatFailsBehindAMoveIsSaidByWhateverComesNextAndLosesNothing) {
  for (const auto& [error, code] :
       {std::pair(EIO, StatusCode::kIo), std::pair(ENOSPC, StatusCode::kStorageFull)}) {
    Fail(DiskCall::kWrite, {.error = error});
    ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
    const Status status = victim_->Append(1);
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), testing::HasSubstr("cannot write"));
    EXPECT_EQ(Stage(victim_->cache()).code(), code);
    EXPECT_EQ(victim_->cache().Move(0, Every(2, 10, Tier::kT0)).code(), code);
    EXPECT_EQ(victim_->cache().Compact(SIZE_MAX), 0u);
    fault_ = {};
    victim_->ExpectLists();
    victim_->ExpectBytes();
    ExpectOk(victim_->Append(1));
    ExpectOk(victim_->Move(0, Every(2, kRows, Tier::kT0)));
    victim_->ExpectBytes();
  }
}

TEST_F(TierFaultsTest, AWriteThatFailsDuringTheNextStepFailsThatStepAndLosesNothing) {
  Fail(DiskCall::kWrite, {.error = EIO, .delay = kLate});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  ExpectOk(victim_->Append(1));
  EXPECT_EQ(Stage(victim_->cache()).code(), StatusCode::kIo);
  fault_ = {};
  victim_->TruncateTo(kRows);
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, RowsThatAreStillBeingWrittenAreReadRightAndMovedRight) {
  Fail(DiskCall::kWrite, {.delay = kLate});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  ExpectOk(victim_->Append(1));
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT0)));
  ExpectOk(victim_->Move(0, Every(2, kRows, Tier::kT1)));
  ExpectOk(victim_->Move(0, Every(5, kRows, Tier::kT2)));
  victim_->ExpectLists();
  victim_->ExpectBytes();
  EXPECT_GT(victim_->cache().moves().seconds, std::chrono::duration<double>(kLate).count());
}

// Two of three of these rows go, so that a compaction frees pages.
void ThinOut(TieredSequence* s, uint32_t first, uint32_t end) {
  std::vector<uint32_t> removed;
  for (uint32_t row = first; row < end; ++row) {
    if (row % 3 != 0) removed.push_back(row);
  }
  s->Remove(0, removed);
}

TEST_F(TierFaultsTest, AWriteThatFailsBehindAMoveIsNotLostToACompaction) {
  constexpr uint32_t kMore = 640;
  for (const Tier thinned : {Tier::kT0, Tier::kT1}) {
    auto sequence = std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 5);
    ExpectOk(sequence->Append(kRows + kMore));
    std::vector<RowMove> down;
    for (uint32_t row = kRows; row < kRows + kMore && thinned == Tier::kT1; ++row) {
      down.push_back({row, Tier::kT1});
    }
    ExpectOk(sequence->Move(0, down));
    ThinOut(sequence.get(), kRows, kRows + kMore);
    Fail(DiskCall::kWrite, {.error = EIO, .delay = kLate});
    ExpectOk(sequence->Move(0, Every(1, kRows, Tier::kT1)));
    const bool in_t0 = thinned == Tier::kT0;
    EXPECT_EQ(sequence->cache().Compact(SIZE_MAX) > 0, in_t0) << "T1 waits for its file";
    fault_ = {};
    // The next step, which perhaps fails, needs what could not be written.
    (void)Stage(sequence->cache());
    ExpectOk(sequence->Append(1));
    sequence->ExpectLists();
    sequence->ExpectBytes();
    EXPECT_EQ(sequence->cache().Compact(SIZE_MAX) > 0, !in_t0);
    sequence->ExpectLists();
    sequence->ExpectBytes();
  }
}

TEST_F(TierFaultsTest, AMoveWhileAnEarlierOneFailsToBeWrittenSaysSoAndLosesNothing) {
  Fail(DiskCall::kWrite, {.error = EIO, .delay = kLate});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  EXPECT_EQ(victim_->Move(0, Every(2, kRows, Tier::kT0)).code(), StatusCode::kIo);
  fault_ = {};
  victim_->ExpectLists();
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, Every(2, kRows, Tier::kT0)));
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, AnExchangeWhoseFirstHalfCannotBeWrittenCanBeAskedForAgain) {
  std::vector<RowMove> exchange;
  for (uint32_t row = 0; row < kRows; ++row) {
    exchange.push_back({row, row % 2 == 0 ? Tier::kT0 : Tier::kT1});
  }
  Fail(DiskCall::kWrite, {.error = EIO});
  const MoveAccounting before = victim_->cache().moves();
  EXPECT_EQ(victim_->cache().Move(0, exchange).code(), StatusCode::kIo);
  EXPECT_EQ(victim_->cache().moves().rows_down - before.rows_down, kRows / 2 * kTiersStreams);
  EXPECT_EQ(victim_->cache().moves().rows_up, before.rows_up);
  fault_ = {};
  ExpectOk(victim_->Move(0, exchange));
  EXPECT_EQ(victim_->cache().moves().rows_down - before.rows_down, kRows / 2 * kTiersStreams);
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, RowsOfOtherTiersDoNotWaitForT1sFile) {
  constexpr std::chrono::seconds kVeryLate{1};
  Fail(DiskCall::kWrite, {.delay = kVeryLate});
  std::vector<RowMove> moves;
  for (uint32_t row = 1; row < kRows; row += 2) {
    moves.push_back({row, row % 4 == 1 ? Tier::kT1 : Tier::kT2});
  }
  const auto start = std::chrono::steady_clock::now();
  ExpectOk(victim_->Move(0, moves));
  EXPECT_LT(std::chrono::steady_clock::now() - start, kVeryLate);
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, RowsThatAreStillBeingWrittenCanGo) {
  Fail(DiskCall::kWrite, {.delay = kLate});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  std::vector<uint32_t> removed;
  for (uint32_t row = 0; row < 200; ++row) removed.push_back(row);
  victim_->Remove(0, removed);
  victim_->ExpectLists();
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, Every(1, kRows - 200, Tier::kT0)));
  ExpectOk(victim_->Move(0, Every(1, kRows - 200, Tier::kT1)));
  victim_->TruncateTo(0);
  victim_->ExpectLists();
}

TEST_F(TierFaultsTest, RowsThatCouldNotBeWrittenCanGo) {
  Fail(DiskCall::kWrite, {.error = EIO});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  EXPECT_FALSE(Stage(victim_->cache()).ok());
  victim_->TruncateTo(64);
  EXPECT_FALSE(Stage(victim_->cache()).ok()) << "a page is left that cannot be written";
  victim_->TruncateTo(0);
  ExpectOk(Stage(victim_->cache()));
  victim_->ExpectLists();
}

TEST_F(TierFaultsTest, ASaveWaitsForWhatIsBeingWritten) {
  Fail(DiskCall::kWrite, {.delay = kLate});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  ExpectOk(victim_->Reload());
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, ASaveOfRowsThatCannotBeWrittenSaysSoAndLosesNothing) {
  Fail(DiskCall::kWrite, {.error = EIO});
  ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
  EXPECT_EQ(victim_->Reload().code(), StatusCode::kIo);
  fault_ = {};
  ExpectOk(victim_->Reload());
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, ASequenceCanEndWhileItsPagesAreWrittenOrCannotBe) {
  for (const DiskFault& with : {DiskFault{.delay = kLate}, DiskFault{.error = EIO}}) {
    Fail(DiskCall::kWrite, with);
    ExpectOk(victim_->Move(0, Every(1, kRows, Tier::kT1)));
    victim_ = std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 3);
    fault_ = {};
    ExpectOk(victim_->Append(kRows));
  }
}

TEST_F(TierFaultsTest, AMoveThatCannotReadBreaksItsSequenceAlone) {
  Fail(DiskCall::kRead, {.error = EIO});
  ExpectBroken(victim_->cache().Move(0, Every(1, kRows, Tier::kT0)));
}

TEST_F(TierFaultsTest, AFirstMoveToT2ThatCannotReadMovesNothingAndCanBeAskedForAgain) {
  Fail(DiskCall::kRead, {.error = EIO}, 1);
  EXPECT_EQ(victim_->cache().Move(0, Every(3, kRows, Tier::kT2)).code(), StatusCode::kIo);
  fault_ = {};
  victim_->ExpectLists();
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT2)));
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, RowsOfT1ThatCannotBeCompressedBreakTheirSequenceAlone) {
  ExpectOk(victim_->Move(0, {{0, Tier::kT2}}));  // the centre of keys is chosen
  Fail(DiskCall::kRead, {.error = EIO});
  ExpectBroken(victim_->cache().Move(0, Every(1, kRows, Tier::kT2)));
}

TEST_F(TierFaultsTest, RowsOfT2ThatRoseToT1AreNotLostWhenTheyCannotBeWritten) {
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT2)));
  Fail(DiskCall::kWrite, {.error = EIO});
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT1)));
  EXPECT_EQ(victim_->Append(1).code(), StatusCode::kIo);
  fault_ = {};
  victim_->ExpectLists();
  victim_->ExpectBytes();
}

TEST_F(TierFaultsTest, MovesOfManyGroupsThatCannotReadBreakTheirSequenceAlone) {
  victim_ = std::make_unique<TieredSequence>(tiers_, Granularity::kHead, 4);
  ExpectOk(victim_->Append(kRows));
  std::map<int, std::vector<RowMove>> down, up;
  for (int group = 0; group < kTiersStreams; ++group) {
    down[group] = Every(2, kRows, Tier::kT1);
    up[group] = Every(3, kRows, Tier::kT0);
  }
  ExpectOk(victim_->Move(down));
  victim_->ExpectLists();
  victim_->ExpectBytes();
  Fail(DiskCall::kRead, {.error = EIO});
  ExpectBroken(victim_->Move(up));
}

TEST_F(TierFaultsTest, ACompactionThatFailsBreaksItsSequenceAlone) {
  std::vector<uint32_t> removed;
  for (uint32_t row = 0; row < kRows; ++row) {
    if (row % 8 != 0) removed.push_back(row);
  }
  victim_->Remove(0, removed);
  Fail(DiskCall::kRead, {.error = EIO});
  victim_->cache().Compact(SIZE_MAX);
  ExpectBroken(victim_->cache().Move(0, Every(2, 10, Tier::kT0)));
}

TEST_F(TierFaultsTest, WithoutSpaceForT1AMoveChangesNothing) {
  Fail(DiskCall::kReserve, {.error = ENOSPC});
  ExpectOk(victim_->Append(5000));
  const auto moves = Every(1, kRows + 5000, Tier::kT1);
  EXPECT_EQ(victim_->Move(0, moves).code(), StatusCode::kStorageFull);
  victim_->ExpectLists();
  victim_->ExpectBytes();
  fault_ = {};
  ExpectOk(victim_->Move(0, moves));
  victim_->ExpectBytes();
}

}  // namespace
}  // namespace ebb
