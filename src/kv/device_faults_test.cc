// A device that fails, or has no memory, beside T1 and T2.
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/device/sim_backend.h"
#include "tests/support/expect_ok.h"
#include "tests/support/kv/tiered_sequence.h"

namespace ebb {
namespace {

Status StageAndRelease(SequenceCache& cache) {
  EBB_ASSIGN_OR_RETURN(StagedStep staged, cache.StageStep());
  for (int layer = 0; layer < kTiersShape.num_layers; ++layer) {
    staged.StageLayer(layer, 0);
    staged.ReleaseLayer(layer);
  }
  return staged.End();
}

// Whether T2 lies on the device.
class DeviceFaultsTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr int kRows = 300;

  // Every second row in T1.
  DeviceFaultsTest() {
    ExpectOk(sequence_->Append(kRows));
    ExpectOk(sequence_->Move(0, Every(2, kRows, Tier::kT1)));
    sequence_->ExpectBytes();
  }
  ~DeviceFaultsTest() override { SetSimBackendFaults({}); }

  static void Fail(bool allocations) {
    SetSimBackendFaults(
        [=](SimBackendWork work) { return (work == SimBackendWork::kAllocate) == allocations; });
  }

  TiersForTest tiers_{{.device = *ParseDevice("ggml-sim:memory=20MiB"),
                       .t1 = T1Place::kHost,
                       .t2_on_device = GetParam(),
                       .t1_cap_bytes = 64 << 20}};
  std::unique_ptr<TieredSequence> sequence_ =
      std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 1);
};

INSTANTIATE_TEST_SUITE_P(T2, DeviceFaultsTest, testing::Bool());

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

TEST_P(DeviceFaultsTest, MovesNeedNoMemoryOfTheDevice) {
  Fail(/*allocations=*/true);
  ExpectOk(sequence_->Move(0, Every(1, kRows, Tier::kT1)));
  ExpectOk(sequence_->Move(0, Every(3, kRows, Tier::kT2)));
  ExpectOk(sequence_->Move(0, Every(6, kRows, Tier::kT0)));
  EXPECT_GT(sequence_->cache().Compact(SIZE_MAX), 0u);
  SetSimBackendFaults({});
  sequence_->ExpectLists();
  sequence_->ExpectBytes();
}

TEST_P(DeviceFaultsTest, WithoutMemoryForAStepTheNextOneIsRight) {
  ExpectOk(sequence_->Append(18'000));
  ExpectOk(sequence_->Move(0, Every(1, 18'000, Tier::kT1)));
  auto other = std::make_unique<TieredSequence>(tiers_, Granularity::kToken, 2);
  Status status;
  while (status.ok()) status = other->Append(1'000);
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory) << status.ToString();
  EXPECT_EQ(StageAndRelease(sequence_->cache()).code(), StatusCode::kOutOfMemory);
  other.reset();
  sequence_->ExpectBytes();
}

TEST_P(DeviceFaultsTest, ALostDeviceBreaksWhatMovesAndGivesEverythingBack) {
  Fail(/*allocations=*/false);
  const Status status = sequence_->cache().Move(0, Every(1, kRows, Tier::kT2));
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.ToString();
  EXPECT_NE(status.message().find("was lost"), std::string::npos);
  SetSimBackendFaults({});
  EXPECT_EQ(sequence_->Append(1).ToString(), status.ToString());
  ExpectOk(sequence_->cache().Validate());
  sequence_.reset();
  for (const Arena* arena : {tiers_.t0.get(), tiers_.t1.get(), tiers_.t2.get()}) {
    EXPECT_EQ(arena->stats().num_pages, 0u);
  }
}

}  // namespace
}  // namespace ebb
