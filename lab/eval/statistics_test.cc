#include "ebb/lab/statistics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

// The sample 1, 2, 4, 9 has mean 4, deviation 3.559; t(0.975, 3) = 3.18245.
TEST(MeanHalfWidth, IsStudentsOfTheMean) {
  EXPECT_NEAR(MeanHalfWidth(16, 102, 4), 3.182446305 * 3.559026084 / 2, 1e-6);
  EXPECT_EQ(MeanHalfWidth(6, 12, 3), 0);
  EXPECT_TRUE(std::isinf(MeanHalfWidth(1, 1, 1)));
}

// The expected values are those of spearmanr in scipy 1.17.
TEST(Spearman, HasTheValuesThatScipyHas) {
  const auto rho = [](std::vector<double> a, std::vector<double> b) {
    return SpearmanCorrelation(a, b);
  };
  EXPECT_NEAR(rho({1, 2, 3, 4, 5}, {5, 6, 7, 8, 7}), 0.8207826816681233, 1e-12);
  EXPECT_NEAR(rho({1, 2, 2, 4, -5, 9}, {3, 3, 1, 8, 2, 2}), 0.1343433226559697, 1e-12);
  EXPECT_NEAR(
      rho({106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, {7, 27, 2, 50, 28, 29, 20, 12, 6, 17}),
      -0.17575757575757575, 1e-12);
  EXPECT_EQ(rho({1, 20, 300}, {-3, -2, -1}), 1);
  EXPECT_EQ(rho({1, 20, 300}, {3, 2, 1}), -1);
}

TEST(Spearman, IsNoNumberWhereNothingIsOrdered) {
  const auto rho = [](std::vector<double> a, std::vector<double> b) {
    return SpearmanCorrelation(a, b);
  };
  EXPECT_TRUE(std::isnan(rho({}, {})));
  EXPECT_TRUE(std::isnan(rho({1}, {1})));
  EXPECT_TRUE(std::isnan(rho({2, 2, 2}, {1, 2, 3})));
  EXPECT_TRUE(std::isnan(rho({1, std::nan(""), 3}, {1, 2, 3})));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(rho({-infinity, 0, infinity}, {1, 2, 3}), 1);
}

TEST(PercentilesTest, InterpolatesBetweenNeighbours) {
  const Interval interval = Percentiles({4, 0, 1, 3, 2}, 0.9);
  EXPECT_NEAR(interval.low, 0.2, 1e-12);
  EXPECT_NEAR(interval.high, 3.8, 1e-12);
}

}  // namespace
}  // namespace ebb
