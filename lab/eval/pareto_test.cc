#include "ebb/lab/pareto.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

TEST(CommonCosts, AreThoseThatBothFrontsSpan) {
  // The last point is behind the front.
  const Points a = {{1, 0.1}, {4, 0.5}, {9, 0.3}};
  const auto common = CommonCosts(a, Points{{2, 0.1}, {8, 0.5}});
  ASSERT_TRUE(common.has_value());
  EXPECT_EQ(common->low, 2);
  EXPECT_EQ(common->high, 4);
  EXPECT_FALSE(CommonCosts(a, Points{{4, 0.1}, {8, 0.5}}).has_value());
  EXPECT_FALSE(CommonCosts(a, Points{}).has_value());
}

// A point with one answer to each of two problems.
ProblemPoint Point(double cost, double score_of_first, double score_of_second) {
  return {.cost = {.sums = {cost, cost}, .counts = {1, 1}},
          .score = {.sums = {score_of_first, score_of_second}, .counts = {1, 1}}};
}

TEST(PointsOf, AreMeansOfTheProblemsDrawn) {
  std::vector<ProblemPoint> points = {Point(4, 1, 0), Point(8, 0.25, 0.75)};
  EXPECT_EQ(PointsOf(points, std::vector<double>{1, 1}), (Points{{4, 0.5}, {8, 0.5}}));
  EXPECT_EQ(PointsOf(points, std::vector<double>{2, 0}), (Points{{4, 1}, {8, 0.25}}));
  // Nothing began where only the second problem is drawn.
  points[0].cost = {.sums = {4, 0}, .counts = {1, 0}};
  EXPECT_EQ(PointsOf(points, std::vector<double>{0, 2}), (Points{{8, 0.75}}));
}

TEST(BootstrapMargins, AreOfProblemsDrawnAnew) {
  // From 1 to 3, a straight line each. On the first problem a is 0.5 above b at 1 and 0.9 at 3, on
  // the second 0 above and 0.2 below: 0.7 and -0.1 where one is drawn twice, 0.3 with both.
  const std::vector<std::vector<ProblemPoint>> methods = {{Point(1, 0.5, 0), Point(3, 1, 0.5)},
                                                          {Point(1, 0, 0), Point(3, 0.1, 0.7)}};
  const auto estimates = BootstrapMargins(methods, std::vector<MethodPair>{{0, 1}, {1, 0}, {0, 0}});
  ASSERT_EQ(estimates.size(), 3u);
  EXPECT_NEAR(*estimates[0].margin, 0.3, 1e-12);
  EXPECT_NEAR(estimates[0].interval.low, -0.1, 1e-12);
  EXPECT_NEAR(estimates[0].interval.high, 0.7, 1e-12);
  EXPECT_EQ(estimates[0].none, 0);
  EXPECT_EQ(estimates[0].costs->low, 1);
  EXPECT_EQ(estimates[0].costs->high, 3);
  EXPECT_NEAR(*estimates[1].margin, -0.3, 1e-12);
  EXPECT_NEAR(estimates[1].interval.low, -0.7, 1e-12);
  EXPECT_EQ(estimates[2].margin, 0.0);
}

TEST(BootstrapMargins, CountTheResamplesWithoutOne) {
  // If a resample draws the first problem alone, a is right for the least cost and its front is a
  // point; if it draws the second alone, b is never right.
  const std::vector<std::vector<ProblemPoint>> methods = {{Point(1, 1, 0), Point(3, 1, 1)},
                                                          {Point(1, 0, 0), Point(3, 1, 0)}};
  const MarginEstimate estimate =
      BootstrapMargins(methods, std::vector<MethodPair>{{0, 1}}, {.resamples = 500, .seed = 3})[0];
  double of_both = 0;
  for (const auto& times : DrawProblems(2, {.resamples = 500, .seed = 3})) {
    of_both += times[0] == 1 ? 1 : 0;
  }
  EXPECT_NEAR(*estimate.margin, 0.5, 1e-12);
  EXPECT_NEAR(estimate.interval.low, 0.5, 1e-12);
  EXPECT_NEAR(estimate.interval.high, 0.5, 1e-12);
  EXPECT_DOUBLE_EQ(estimate.none, 1 - of_both / 500);
  EXPECT_NEAR(estimate.none, 0.5, 0.1);
}

TEST(BootstrapMargins, OfFrontsThatNeverMeetAreNone) {
  const std::vector<std::vector<ProblemPoint>> methods = {{Point(1, 0.1, 0.2), Point(2, 1, 1)},
                                                          {Point(5, 0.1, 0.2), Point(9, 1, 1)}};
  const MarginEstimate estimate = BootstrapMargins(methods, std::vector<MethodPair>{{0, 1}})[0];
  EXPECT_FALSE(estimate.margin.has_value());
  EXPECT_FALSE(estimate.costs.has_value());
  EXPECT_TRUE(std::isnan(estimate.interval.low));
  EXPECT_EQ(estimate.none, 1);
}

}  // namespace
}  // namespace ebb
