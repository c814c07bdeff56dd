#include "ebb/lab/statistics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

// Made with scipy 1.17: binomtest(k, n).proportion_ci(confidence, "exact").
TEST(ClopperPearson, HasTheEndsThatScipyHas) {
  struct Case {
    Count count;
    double confidence;
    double low;
    double high;
  };
  for (const Case& c : std::vector<Case>{
           {{0, 50}, 0.95, 0.0, 0.07112173646420458},
           {{50, 50}, 0.95, 0.9288782635357954, 1.0},
           {{29, 50}, 0.95, 0.4320604350653683, 0.7181177588761135},
           {{142, 200}, 0.95, 0.6418125478377089, 0.771843010636583},
           {{5, 200}, 0.95, 0.00816616619071024, 0.05737435112726713},
           {{1, 1}, 0.95, 0.025000000000000022, 1.0},
           {{970, 1000}, 0.99, 0.9531975136766379, 0.9821318084724767},
           {{7, 10}, 0.9, 0.39337578389442357, 0.9127355660858497},
       }) {
    const auto interval = ClopperPearson(c.count, c.confidence);
    ASSERT_TRUE(interval.ok());
    EXPECT_NEAR(interval->low, c.low, 1e-10) << c.count.successes << " of " << c.count.trials;
    EXPECT_NEAR(interval->high, c.high, 1e-10) << c.count.successes << " of " << c.count.trials;
  }
}

// 000, Tables 1, 3 and 5: percents, rounded.
TEST(ClopperPearson, HasTheEndsOfThePublishedTables) {
  struct Case {
    Count count;
    int low;
    int high;
  };
  for (const Case& c : std::vector<Case>{{{33, 50}, 51, 79},
                                         {{30, 50}, 45, 74},
                                         {{1, 50}, 0, 11},
                                         {{4, 50}, 2, 19},
                                         {{142, 200}, 64, 77},
                                         {{5, 200}, 1, 6},
                                         {{0, 200}, 0, 2}}) {
    const auto interval = ClopperPearson(c.count);
    ASSERT_TRUE(interval.ok());
    EXPECT_EQ(std::lround(100 * interval->low), c.low);
    EXPECT_EQ(std::lround(100 * interval->high), c.high);
  }
}

TEST(ClopperPearson, KnowsNothingWithoutTrials) {
  const auto interval = ClopperPearson({0, 0});
  ASSERT_TRUE(interval.ok());
  EXPECT_EQ(interval->low, 0);
  EXPECT_EQ(interval->high, 1);
}

TEST(ClopperPearson, RefusesCountsAndConfidencesThatCannotBe) {
  using testing::HasSubstr;
  EXPECT_THAT(ClopperPearson({3, 2}).status().message(), HasSubstr("found 3 of 2"));
  EXPECT_THAT(ClopperPearson({-1, 2}).status().message(), HasSubstr("found -1 of 2"));
  EXPECT_THAT(ClopperPearson({1, 2}, 1).status().message(), HasSubstr("confidence"));
  EXPECT_THAT(ClopperPearson({1, 2}, std::nan("")).status().message(), HasSubstr("confidence"));
}

// Made with scipy 1.17: fisher_exact. (3/4, 1/4) is Fisher's lady tasting tea.
TEST(FisherExact, HasThePValuesThatScipyHas) {
  struct Case {
    Count a;
    Count b;
    double p;
  };
  for (const Case& c : std::vector<Case>{
           {{142, 200}, {5, 200}, 8.901157970144225e-53},
           {{142, 200}, {130, 200}, 0.23831908296209348},
           {{63, 200}, {45, 200}, 0.05526362297140449},
           {{3, 4}, {1, 4}, 0.48571428571428565},
           {{8, 10}, {1, 6}, 0.034965034965034975},
           {{10, 10}, {0, 10}, 1.082508822446903e-05},
           {{970, 1000}, {969, 1000}, 1.0},
           {{600, 1000}, {520, 1000}, 0.00037009594888980866},
           {{1, 50}, {10, 50}, 0.007780391262791977},
       }) {
    const auto p = FisherExactTwoSided(c.a, c.b);
    const auto swapped = FisherExactTwoSided(c.b, c.a);
    ASSERT_TRUE(p.ok() && swapped.ok());
    EXPECT_NEAR(*p, c.p, 1e-8 * c.p) << c.a.successes << " against " << c.b.successes;
    EXPECT_NEAR(*swapped, c.p, 1e-8 * c.p);
  }
}

TEST(FisherExact, IsOneWhereNothingCanBeToldApart) {
  for (const auto& [a, b] : std::vector<std::pair<Count, Count>>{
           {{0, 10}, {0, 10}}, {{10, 10}, {7, 7}}, {{0, 0}, {3, 7}}, {{0, 0}, {0, 0}}}) {
    const auto p = FisherExactTwoSided(a, b);
    ASSERT_TRUE(p.ok());
    EXPECT_EQ(*p, 1.0);
  }
}

TEST(FisherExact, RefusesCountsThatCannotBe) {
  EXPECT_FALSE(FisherExactTwoSided({3, 2}, {1, 2}).ok());
  EXPECT_FALSE(FisherExactTwoSided({1, 2}, {-1, 2}).ok());
  EXPECT_FALSE(FisherExactTwoSided({1, int64_t{1} << 40}, {1, 2}).ok());
}

// The sample 1, 2, 4, 9 has mean 4, deviation 3.559; t(0.975, 3) = 3.18245.
TEST(MeanHalfWidth, IsStudentsOfTheMean) {
  EXPECT_NEAR(MeanHalfWidth(16, 102, 4), 3.182446305 * 3.559026084 / 2, 1e-6);
  EXPECT_EQ(MeanHalfWidth(6, 12, 3), 0);
  EXPECT_TRUE(std::isinf(MeanHalfWidth(1, 1, 1)));
}

TEST(FisherZ, NarrowsWithTheRootOfTheSamples) {
  EXPECT_NEAR(FisherZHalfWidth(10), 0.7407967545337467, 1e-12);
  EXPECT_NEAR(FisherZHalfWidth(30), 0.37719524469205723, 1e-12);
  EXPECT_NEAR(FisherZHalfWidth(355), 0.10446643138378402, 1e-12);
  EXPECT_TRUE(std::isinf(FisherZHalfWidth(3)));
  const Interval interval = FisherZInterval(0.5, 100);
  EXPECT_NEAR(interval.low, 0.33664330440909185, 1e-12);
  EXPECT_NEAR(interval.high, 0.6341398407485443, 1e-12);
  EXPECT_EQ(FisherZInterval(1, 3).low, -1);
  EXPECT_EQ(FisherZInterval(1, 100).low, 1);
}

// Made with scipy 1.17: spearmanr.
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
