#include <limits>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/placements.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Placement> MakeDelayed(int window, int shift = 1) {
  auto made =
      MakeDelayedPlacement({.policy = "dms", .eviction_window = window, .eviction_shift = shift});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

struct DelayedGroup {
  std::vector<Position> positions;
  std::vector<float> scores;
  Position next_position = 0;

  [[nodiscard]] PlacementInput Input() const {
    return {.positions = positions, .scores = scores, .next_position = next_position};
  }
};

std::vector<Position> Evicted(Placement* placement, const DelayedGroup& group) {
  std::vector<Move> moves;
  placement->Place(group.Input(), &moves);
  std::vector<Position> positions;
  for (const Move& move : moves) {
    EXPECT_EQ(move.to, Tier::kT3);
    positions.push_back(group.positions[move.row]);
  }
  return positions;
}

TEST(DelayedPlacement, AMarkedRowGoesWhenTheNextQueryIsFurtherThanTheWindow) {
  const auto placement = MakeDelayed(3);
  EXPECT_EQ(placement->Name(), "delayed:window=3");
  const DelayedGroup group = {{0, 1, 2, 4, 5, 6}, {-1, 1, -1, -1, -1, 0}, 7};
  // The next query is at 7: the row at 4 is 3 tokens before it.
  EXPECT_THAT(Evicted(placement.get(), group), ElementsAre(0, 2));
  DelayedGroup later = group;
  later.next_position = 8;
  EXPECT_THAT(Evicted(placement.get(), later), ElementsAre(0, 2, 4));
}

TEST(DelayedPlacement, WhatIsNotMarkedStaysForEver) {
  const auto placement = MakeDelayed(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(Evicted(placement.get(), {{0, 1, 2, 3}, {0, 5, nan, 0}, 1000}), IsEmpty());
}

TEST(DelayedPlacement, IsDueOnceARowCanBeOlderThanTheWindow) {
  const auto placement = MakeDelayed(3);
  EXPECT_FALSE(placement->Due({.next_position = 3}, 3));
  EXPECT_TRUE(placement->Due({.next_position = 4}, 4));
  EXPECT_FALSE(placement->Due({.next_position = 4}, 0));
}

TEST(DelayedPlacement, ARowExpiresWithinTheStepWhoseLastQueriesAreFurther) {
  const auto placement = MakeDelayed(4);
  EXPECT_EQ(placement->LongestStep(), 4);
  // A step of tokens 10 to 13, which are not marked yet.
  const DelayedGroup group = {{5, 6, 7, 8, 9, 10, 11, 12, 13}, {1, -1, -1, -1, -1, 0, 0, 0, 0}, 14};
  std::vector<Expiry> expiring;
  placement->FindExpiring(group.Input(), &expiring);
  ASSERT_EQ(expiring.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(expiring[i].row, i + 1);
    EXPECT_EQ(expiring[i].last_visible, static_cast<Position>(6 + i + 4));
  }
}

TEST(DelayedPlacement, AStepIsSoShortThatAllItsDecisionsAreThereBefore) {
  EXPECT_EQ(MakeDelayed(9, 0)->LongestStep(), 10);
  EXPECT_EQ(MakeDelayed(9, 1)->LongestStep(), 9);
  EXPECT_EQ(MakeDelayed(9, 5)->LongestStep(), 5);
  EXPECT_EQ(MakeDelayed(9, 9)->LongestStep(), 1);
}

// Which rows each query sees, asked of the two ways: token by token, and in steps.
class DelayedPlacementSteps : public ::testing::TestWithParam<int> {};

TEST_P(DelayedPlacementSteps, OfAnySizeShowEachQueryTheSameRows) {
  constexpr int kTokens = 200, kWindow = 9;
  const int shift = GetParam();
  std::mt19937 random(3);
  std::vector<float> marks(kTokens);
  for (float& mark : marks) mark = random() % 2 == 0 ? -1.0f : 1.0f;
  const auto seen = [&](int chunk) {
    const auto placement = MakeDelayed(kWindow, shift);
    std::vector<std::vector<Position>> by_query;
    DelayedGroup group;
    while (group.next_position < kTokens) {
      const Position first = group.next_position;
      const int size = std::min(chunk, kTokens - first);
      for (int t = 0; t < size; ++t) {
        group.positions.push_back(first + t);
        group.scores.push_back(0);
      }
      group.next_position = first + size;
      std::vector<Expiry> expiring;
      if (size > 1) placement->FindExpiring(group.Input(), &expiring);
      for (Position query = first; query < first + size; ++query) {
        std::vector<Position> visible;
        for (size_t row = 0; row < group.positions.size(); ++row) {
          const auto expires = std::ranges::find(expiring, row, &Expiry::row);
          const bool over = expires != expiring.end() && query > expires->last_visible;
          if (group.positions[row] <= query && !over) visible.push_back(group.positions[row]);
        }
        by_query.push_back(visible);
      }
      for (size_t row = 0; row < group.positions.size(); ++row) {
        const bool decided = group.positions[row] + shift < group.next_position;
        if (decided) group.scores[row] = marks[group.positions[row]];
      }
      for (const Position gone : Evicted(placement.get(), group)) {
        const auto row = std::ranges::find(group.positions, gone) - group.positions.begin();
        group.positions.erase(group.positions.begin() + row);
        group.scores.erase(group.scores.begin() + row);
      }
    }
    return by_query;
  };
  const auto one_by_one = seen(1);
  for (Position query = 0; query < kTokens; ++query) {
    std::vector<Position> expected;
    for (Position p = 0; p <= query; ++p) {
      if (marks[p] > 0 || query - p <= kWindow) expected.push_back(p);
    }
    ASSERT_EQ(one_by_one[query], expected) << query;
  }
  const int longest = MakeDelayed(kWindow, shift)->LongestStep();
  for (int chunk = 2; chunk <= longest; ++chunk) EXPECT_EQ(seen(chunk), one_by_one) << chunk;
  EXPECT_NE(seen(longest + 1), one_by_one) << "a longer step shows rows that are over";
}
INSTANTIATE_TEST_SUITE_P(Shifts, DelayedPlacementSteps, ::testing::Values(0, 1, 5, 9));

}  // namespace
}  // namespace ebb
