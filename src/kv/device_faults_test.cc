// A device that fails beside T1: the sequence that met it says so, others on the same stores go on.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/tiered_sequence.h"

namespace ebb {
namespace {

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }

Status Stage(SequenceCache& cache) {
  EBB_RETURN_IF_ERROR(cache.BeginStaging());
  for (int layer = 0; layer < kTiersShape.num_layers; ++layer) {
    cache.StageLayer(layer, 0);
    cache.ReleaseLayer(layer);
  }
  return cache.EndStaging();
}

class DeviceFaultsTest : public testing::TestWithParam<CopyArrival> {
 protected:
  static constexpr int kRows = 300;
  using Call = DeviceRequest::Call;

  // Two sequences with every second row in T1.
  DeviceFaultsTest() {
    for (TieredSequence* s : {victim_.get(), bystander_.get()}) {
      ExpectOk(s->Append(kRows));
      ExpectOk(s->Move(0, Every(2, kRows, Tier::kT1)));
      s->ExpectBytes();
    }
  }

  ~DeviceFaultsTest() override {
    Heal();
    ExpectOk(bystander_->Append(70));
    const auto num_rows = static_cast<uint32_t>(bystander_->groups()[0].size());
    for (const auto& [step, to] : {std::pair(3u, Tier::kT1), {5u, Tier::kT0}, {7u, Tier::kT2}}) {
      ExpectOk(bystander_->Move(0, Every(step, num_rows, to)));
    }
    bystander_->ExpectLists();
    bystander_->ExpectBytes();
    victim_.reset();
    bystander_.reset();
    tiers_.ExpectEmpty();
  }

  void Heal() { tiers_.sim->SetFaults({}); }

  // Calls like this one, from the `after`-th on.
  void Fail(Call call, DeviceQueue queue, int after = 0) {
    tiers_.sim->SetFaults([=](const DeviceRequest& request) mutable -> DeviceFault {
      const bool meant =
          request.call == call && (call == Call::kAllocate || request.queue == queue);
      return {.kind = meant && after-- <= 0 ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
    });
  }

  void ExpectBroken(const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kIo) << status.ToString();
    EXPECT_NE(status.message().find("the device failed to copy"), std::string::npos);
    Heal();
    EXPECT_EQ(victim_->Append(1).ToString(), status.ToString());
    EXPECT_EQ(victim_->cache().Move(0, Every(2, 10, Tier::kT0)).ToString(), status.ToString());
    ExpectOk(victim_->cache().Validate());
  }

  TiersForTest tiers_{
      {.device = {.kind = DeviceKind::kSim, .memory_bytes = 128 << 20, .copies = GetParam()},
       .t1 = T1Place::kHost,
       .t1_cap_bytes = 64 << 20}};
  std::unique_ptr<TieredSequence> victim_ =
      std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 1);
  std::unique_ptr<TieredSequence> bystander_ =
      std::make_unique<TieredSequence>(tiers_, Granularity::kLayer, 2);
};

TEST_P(DeviceFaultsTest, AStepWhoseCopiesFailSaysSoAndTheNextOneIsRight) {
  for (int after = 0; after < kTiersShape.num_layers; ++after) {
    // What is on its way already is made stale by a move.
    ExpectOk(victim_->Move(0, {{static_cast<uint32_t>(2 * after), Tier::kT0}}));
    Fail(Call::kCopy, DeviceQueue::kToDevice, after);
    EXPECT_EQ(Stage(victim_->cache()).code(), StatusCode::kIo) << after;
    Heal();
    victim_->ExpectBytes();
  }
  ExpectOk(victim_->Append(1));
  victim_->ExpectLists();
}

// Compaction takes extents apart whose pages the next step's copies read.
TEST_P(DeviceFaultsTest, PagesOnTheirWayArriveAsTheyWereThoughTheirExtentGoes) {
  constexpr uint32_t kMore = 512;
  TieredSequence stays(tiers_, Granularity::kToken, 3), leaves(tiers_, Granularity::kToken, 4);
  for (uint32_t rows = 0; rows < 20 * kMore; rows += kMore) {
    for (TieredSequence* s : {&stays, &leaves}) {
      ExpectOk(s->Append(kMore));
      std::vector<RowMove> down;
      for (uint32_t row = rows; row < rows + kMore; ++row) down.push_back({row, Tier::kT1});
      ExpectOk(s->Move(0, down));
    }
  }
  ExpectOk(leaves.Move(0, Every(1, 20 * kMore, Tier::kT0)));
  stays.ExpectBytes();  // the next step's first layer is on its way
  EXPECT_GT(tiers_.t1->Compact(SIZE_MAX), 0u);
  stays.ExpectBytes();
}

TEST_P(DeviceFaultsTest, ACopyAheadThatFailsIsSaidByTheStepThatNeedsIt) {
  Fail(Call::kCopy, DeviceQueue::kToDevice, kTiersShape.num_layers);
  Status status;
  for (int step = 0; step < 3 && status.ok(); ++step) status = Stage(victim_->cache());
  EXPECT_EQ(status.code(), StatusCode::kIo);
  Heal();
  victim_->ExpectBytes();
}

TEST_P(DeviceFaultsTest, AMoveThatCannotSinkBreaksItsSequenceAlone) {
  Fail(Call::kCopy, DeviceQueue::kToHost);
  ExpectBroken(victim_->cache().Move(0, Every(1, kRows, Tier::kT1)));
}

TEST_P(DeviceFaultsTest, AMoveThatCannotRiseBreaksItsSequenceAlone) {
  Fail(Call::kCopy, DeviceQueue::kToDevice);
  ExpectBroken(victim_->cache().Move(0, Every(1, kRows, Tier::kT0)));
}

TEST_P(DeviceFaultsTest, RowsOfT1ThatCannotBeCompressedBreakTheirSequenceAlone) {
  Fail(Call::kCopy, DeviceQueue::kToDevice);
  ExpectBroken(victim_->cache().Move(0, Every(1, kRows, Tier::kT2)));
}

TEST_P(DeviceFaultsTest, RowsOfT2ThatCannotRiseToT1BreakTheirSequenceAlone) {
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT2)));
  Fail(Call::kCopy, DeviceQueue::kToHost);
  ExpectBroken(victim_->cache().Move(0, Every(3, kRows, Tier::kT1)));
}

TEST_P(DeviceFaultsTest, WithoutMemoryForAMoveNothingChanges) {
  ExpectOk(victim_->Append(20'000));
  const auto moves = Every(1, kRows + 20'000, Tier::kT1);
  Fail(Call::kAllocate, {});
  EXPECT_EQ(victim_->Move(0, moves).code(), StatusCode::kResourceExhausted);
  victim_->ExpectLists();
  Heal();
  victim_->ExpectBytes();
  ExpectOk(victim_->Move(0, moves));
  victim_->ExpectBytes();
}

// Extents that rows leave go back to the device, which then refuses them to the rows that come.
TEST_P(DeviceFaultsTest, RowsThatWentDownAreCountedThoughNoneCouldRise) {
  constexpr uint32_t kMore = 20'000;
  ExpectOk(victim_->Append(2 * kMore - kRows));
  ExpectOk(victim_->Move(0, Every(1, kMore, Tier::kT1)));
  std::vector<RowMove> exchange = Every(1, kMore, Tier::kT0);
  for (uint32_t row = kMore; row < 2 * kMore; ++row) exchange.push_back({row, Tier::kT1});
  tiers_.sim->SetFaults([](const DeviceRequest& request) -> DeviceFault {
    const bool meant = request.call == Call::kAllocate && request.memory == MemoryKind::kDevice;
    return {.kind = meant ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  const MoveAccounting before = victim_->cache().moves();
  EXPECT_EQ(victim_->cache().Move(0, exchange).code(), StatusCode::kResourceExhausted);
  const MoveAccounting after = victim_->cache().moves();
  EXPECT_EQ(after.rows_down - before.rows_down, int64_t{kMore} * kTiersStreams);
  EXPECT_EQ(after.rows_up, before.rows_up);
  EXPECT_EQ(victim_->cache().accounting().tiers[1].rows, int64_t{2 * kMore} * kTiersStreams);
  Heal();
  ExpectOk(victim_->cache().Move(0, exchange));
  EXPECT_EQ(victim_->cache().moves().rows_down, after.rows_down);
  EXPECT_EQ(victim_->cache().moves().rows_up - before.rows_up, int64_t{kMore} * kTiersStreams);
  ExpectOk(victim_->cache().Validate());
}

TEST_P(DeviceFaultsTest, WithoutMemoryForAStepTheNextOneIsRight) {
  ExpectOk(victim_->Append(20'000));
  ExpectOk(victim_->Move(0, Every(1, 20'000, Tier::kT1)));
  Fail(Call::kAllocate, {});
  EXPECT_EQ(Stage(victim_->cache()).code(), StatusCode::kResourceExhausted);
  Heal();
  victim_->ExpectBytes();
}

TEST_P(DeviceFaultsTest, ASlowDeviceChangesNoByte) {
  const double before = tiers_.sim->Seconds();
  tiers_.sim->SetFaults([](const DeviceRequest&) -> DeviceFault { return {.delay_seconds = 1}; });
  ExpectOk(victim_->Move(0, Every(3, kRows, Tier::kT1)));
  victim_->ExpectBytes();
  EXPECT_GT(tiers_.sim->Seconds(), before + 1);
  EXPECT_GT(victim_->cache().accounting().moves.seconds, 1);
}

INSTANTIATE_TEST_SUITE_P(Arrivals, DeviceFaultsTest,
                         testing::Values(CopyArrival::kLate, CopyArrival::kAtOnce,
                                         CopyArrival::kThread));

}  // namespace
}  // namespace ebb
