#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "src/policy/placements.h"

namespace ebb {
namespace {

class PagedPlacementTest : public testing::Test {
 protected:
  // Decodes to `length` tokens, and carries the moves out.
  void DecodeTo(Position length) {
    while (Length() < length) {
      tiers_.push_back(Tier::kT0);
      if (placement_->Due(Input(StepKind::kDecode), tiers_.size())) Place(StepKind::kDecode);
    }
  }
  void Place(StepKind kind) {
    std::vector<Move> moves;
    placement_->Place(Input(kind), &moves);
    for (const Move& move : moves) tiers_[move.row] = move.to;
  }
  PlacementInput Input(StepKind kind) {
    positions_.resize(tiers_.size());
    std::iota(positions_.begin(), positions_.end(), 0);
    return {.positions = positions_,
            .tiers = tiers_,
            .next_position = Length(),
            .generated_tokens = Length(),
            .step_kind = kind};
  }
  [[nodiscard]] Position Length() const { return static_cast<Position>(tiers_.size()); }
  // The positions in T1; expects them to be one range.
  [[nodiscard]] std::pair<Position, Position> InT1() const {
    const auto first = std::ranges::find(tiers_, Tier::kT1);
    const auto end = std::find(first, tiers_.end(), Tier::kT0);
    EXPECT_EQ(std::find(end, tiers_.end(), Tier::kT1), tiers_.end());
    return {first - tiers_.begin(), end - tiers_.begin()};
  }

  std::unique_ptr<Placement> placement_ = *MakePagedPlacement({});
  std::vector<Tier> tiers_;
  std::vector<Position> positions_;
};

TEST_F(PagedPlacementTest, WholePagesGoToT1ButTheFirstAndTheNewest) {
  DecodeTo(5 * 64);
  EXPECT_THAT(tiers_, testing::Each(Tier::kT0));
  DecodeTo(5 * 64 + 1);
  EXPECT_EQ(InT1(), std::pair(64, 128));
  DecodeTo(1000);
  EXPECT_EQ(InT1(), std::pair(64, 768));
}

TEST_F(PagedPlacementTest, APromptIsPlacedChunkByChunk) {
  tiers_.assign(700, Tier::kT0);
  ASSERT_TRUE(placement_->Due(Input(StepKind::kPrefill), 700));
  Place(StepKind::kPrefill);
  EXPECT_EQ(InT1(), std::pair(64, 448));
}

TEST_F(PagedPlacementTest, RowsThatAreNewestAgainAfterARollBackComeBack) {
  DecodeTo(1000);
  tiers_.resize(600);
  Place(StepKind::kDecode);
  EXPECT_EQ(InT1(), std::pair(64, 384));
}

TEST_F(PagedPlacementTest, ACapOnT0LeavesNoShareToChoose) {
  EXPECT_TRUE(placement_->SetT0Share(0.5));
  EXPECT_FALSE(
      (*MakePagedPlacement({.tiers = {.engine = {.t0_cap_bytes = 1 << 20}}}))->SetT0Share(0.5));
}

}  // namespace
}  // namespace ebb
