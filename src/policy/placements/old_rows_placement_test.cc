#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "src/policy/placements.h"

namespace ebb {
namespace {

class OldRowsPlacementTest : public testing::Test {
 protected:
  // Decodes to `length` tokens, and carries the moves out.
  void DecodeTo(Position length) {
    while (Length() < length) {
      tiers_.push_back(Tier::kT0);
      if (placement_->Due(Input(StepKind::kDecode), tiers_.size())) Place(StepKind::kDecode);
    }
  }
  void Place(StepKind kind, int new_tokens = 1) {
    std::vector<Move> moves;
    placement_->Place(Input(kind, new_tokens), &moves);
    for (const Move& move : moves) tiers_[move.row] = move.to;
  }
  PlacementInput Input(StepKind kind, int new_tokens = 1) {
    positions_.resize(tiers_.size());
    std::iota(positions_.begin(), positions_.end(), 0);
    return {.positions = positions_,
            .tiers = tiers_,
            .next_position = Length(),
            .generated_tokens = Length(),
            .new_tokens = new_tokens,
            .step_kind = kind};
  }
  [[nodiscard]] Position Length() const { return static_cast<Position>(tiers_.size()); }
  // The positions in T2; expects them to be one range.
  [[nodiscard]] std::pair<Position, Position> InT2() const {
    const auto first = std::ranges::find(tiers_, Tier::kT2);
    const auto end = std::find(first, tiers_.end(), Tier::kT0);
    EXPECT_EQ(std::find(end, tiers_.end(), Tier::kT2), tiers_.end());
    return {first - tiers_.begin(), end - tiers_.begin()};
  }

  std::unique_ptr<Placement> placement_ = *MakeOldRowsPlacement({});
  std::vector<Tier> tiers_;
  std::vector<Position> positions_;
};

TEST_F(OldRowsPlacementTest, SaysWhyARowLiesWhereItDoes) {
  DecodeTo(257);
  const PlacementInput input = Input(StepKind::kDecode);
  EXPECT_EQ(placement_->Explain(input, 63), "one of the first 64 tokens: T0");
  EXPECT_EQ(placement_->Explain(input, 64), "an old token: T2, as int8");
  EXPECT_EQ(placement_->Explain(input, 191), "an old token: T2, as int8");
  EXPECT_EQ(placement_->Explain(input, 192),
            "one of the newest 65 to 128 tokens, which are compressed in pages of 64: T0");
  // Before the decision is carried out, the row is still in T0.
  tiers_[191] = Tier::kT0;
  EXPECT_EQ(placement_->Explain(Input(StepKind::kDecode), 191), "an old token: T2, as int8");
}

TEST_F(OldRowsPlacementTest, WholePagesAreCompressedExceptTheFirstAndTheNewest) {
  DecodeTo(192);
  EXPECT_THAT(tiers_, testing::Each(Tier::kT0));
  DecodeTo(193);
  EXPECT_EQ(InT2(), std::pair(64, 128));
  DecodeTo(256);
  EXPECT_EQ(InT2(), std::pair(64, 128)) << "the newest 128 rows are in T0";
  DecodeTo(257);
  EXPECT_EQ(InT2(), std::pair(64, 192)) << "the newest 65 rows are in T0";
}

TEST_F(OldRowsPlacementTest, RowsOfAPromptAreCompressedChunkByChunk) {
  tiers_.assign(700, Tier::kT0);
  ASSERT_TRUE(placement_->Due(Input(StepKind::kPrefill), 700));
  Place(StepKind::kPrefill, 700);
  EXPECT_EQ(InT2(), std::pair(64, 576));
}

TEST_F(OldRowsPlacementTest, WithinAPromptTheRowsOfWholeChunksAreCompressed) {
  tiers_.assign(512, Tier::kT0);
  PlacementInput input = Input(StepKind::kPrefill, 512);
  input.tokens_to_come = 300;
  std::vector<Move> moves;
  placement_->Place(input, &moves);
  ASSERT_EQ(moves.size(), 512u - 64);
  EXPECT_EQ(moves.front(), (Move{.row = 64, .to = Tier::kT2}));
  EXPECT_EQ(moves.back(), (Move{.row = 511, .to = Tier::kT2}));
}

TEST_F(OldRowsPlacementTest, BetweenStepsNoRowIsCompressedAndRowsComeBackFromT1) {
  tiers_.assign(700, Tier::kT0);
  std::fill(tiers_.begin() + 600, tiers_.end(), Tier::kT1);
  Place(StepKind::kPrefill, /*new_tokens=*/0);
  EXPECT_THAT(tiers_, testing::Each(Tier::kT0));
}

TEST_F(OldRowsPlacementTest, CompressedRowsStaySoAfterARollBack) {
  DecodeTo(1000);
  tiers_.resize(600);
  Place(StepKind::kDecode);
  EXPECT_EQ(InT2(), std::pair(64, 600));
}

}  // namespace
}  // namespace ebb
