#include "ebb/pareto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb {
namespace {

using Points = std::vector<CostPoint>;

TEST(ParetoFront, KeepsWhatNothingBeats) {
  const Points points = {{3, 0.9}, {1, 0.5}, {2, 0.4}, {2, 0.6}, {4, 0.8}, {5, 0.9}};
  EXPECT_EQ(ParetoFront(points), (Points{{1, 0.5}, {2, 0.6}, {3, 0.9}}));
  EXPECT_TRUE(ParetoFront({}).empty());
}

TEST(FrontMargin, IsTheMeanDifferenceOverTheCommonInterval) {
  const Points flat = {{0, 0.5}, {10, 0.5000001}};
  const Points rising = {{2, 0.5}, {4, 0.7}, {20, 0.7000001}};
  // From 2 to 10: a triangle of 2 by 0.2, then 6 by 0.2.
  EXPECT_NEAR(*FrontMargin(rising, flat), (0.2 + 1.2) / 8, 1e-6);
  EXPECT_NEAR(*FrontMargin(flat, rising), -(0.2 + 1.2) / 8, 1e-6);
}

TEST(FrontMargin, OfAFrontAndItselfIsZero) {
  const Points points = {{1, 0.1}, {2, 0.5}, {7, 0.6}};
  EXPECT_EQ(FrontMargin(points, points), 0.0);
}

TEST(FrontMargin, IsNoneWhereCostsDoNotMeet) {
  EXPECT_EQ(FrontMargin(Points{{1, 0.1}, {2, 0.5}}, Points{{3, 0.1}, {4, 0.5}}), std::nullopt);
  EXPECT_EQ(FrontMargin(Points{{1, 0.1}, {2, 0.5}}, Points{{2, 0.1}, {4, 0.5}}), std::nullopt);
  EXPECT_EQ(FrontMargin(Points{}, Points{{2, 0.1}, {4, 0.5}}), std::nullopt);
}

TEST(FrontMargin, CountsPointsThatTheFrontLeavesOutForNothing) {
  const Points a = {{1, 0.2}, {2, 0.1}, {3, 0.4}};
  const Points b = {{1, 0.2}, {3, 0.4}};
  EXPECT_NEAR(*FrontMargin(a, b), 0, 1e-12);
}

}  // namespace
}  // namespace ebb
