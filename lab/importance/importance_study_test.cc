#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ebb/lab/importance.h"

namespace ebb {
namespace {

using testing::DoubleEq;
using testing::DoubleNear;
using testing::ElementsAre;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Smoothed, ExponentialKeepsNineTenthsOfWhatWas) {
  const std::vector<double> values = {10, 0, 20};
  EXPECT_THAT(Smoothed(values, Smoothing::kExponential),
              ElementsAre(DoubleEq(10), DoubleEq(9), DoubleNear(10.1, 1e-12)));
  EXPECT_EQ(Smoothed(values, Smoothing::kRaw), values);
}

TEST(Smoothed, RollingIsTheMeanOfTheLast64) {
  std::vector<double> values(100, 1.0);
  values[0] = 65;
  const std::vector<double> smooth = Smoothed(values, Smoothing::kRolling);
  EXPECT_EQ(smooth[0], 65);
  EXPECT_EQ(smooth[1], 33);
  EXPECT_EQ(smooth[63], 2);
  EXPECT_EQ(smooth[64], 1);
}

TEST(BestBand, HasTheLargestSum) {
  const std::vector<double> by_layer = {-0.1, 0.2, -0.05, 0.3, -0.4, 0.25};
  EXPECT_EQ(BestBand(by_layer), (LayerBand{1, 3}));
  EXPECT_EQ(BestBand(std::vector<double>{0.1, 0.2, kNaN, 0.25}), (LayerBand{0, 1}));
  EXPECT_EQ(BestBand(std::vector<double>{-0.1, -0.2}), std::nullopt);
  EXPECT_EQ(BestBand(std::vector<double>{}), std::nullopt);
}

// Returns labels of a thought after a prompt of 3 tokens.
ImportanceLabels Thought(const std::vector<uint8_t>& important) {
  ImportanceLabels labels = {.thought_begin = 3};
  labels.important.assign(3, 1);
  for (const uint8_t label : important) labels.important.push_back(label);
  labels.boundary = static_cast<Position>(labels.important.size());
  labels.tokens.resize(labels.important.size());
  return labels;
}

TEST(ImportanceStudy, TellsWithinFromPooled) {
  // In each thought the signal runs against the labels; over all thoughts it rises with the share
  // of important tokens.
  ImportanceStudy study;
  study.Add(Thought({0, 0, 0, 1}), {{"signal", {4, 3, 2, 1}}});
  study.Add(Thought({0, 1, 1, 1}), {{"signal", {14, 13, 12, 11}}});
  const auto correlations = study.Correlations();
  ASSERT_EQ(correlations.size(), 1u);
  EXPECT_EQ(correlations[0].name, "signal");
  EXPECT_EQ(correlations[0].thoughts, 2);
  EXPECT_EQ(correlations[0].tokens, 8);
  // Correlates ranks (4, 3, 2, 1) with labels whose ranks are (2, 2, 2, 4): -3 / sqrt(5 * 3).
  EXPECT_NEAR(correlations[0].within, -std::sqrt(0.6), 1e-12);
  EXPECT_GT(correlations[0].pooled, 0);
  EXPECT_NEAR(correlations[0].trend, -1, 1e-12);
  EXPECT_EQ(study.ImportantShare(), 0.5);
}

TEST(ImportanceStudy, LeavesOutThoughtsInWhichNothingDiffers) {
  ImportanceStudy study;
  study.Add(Thought({1, 1, 1}), {{"signal", {1, 2, 3}}});
  EXPECT_TRUE(std::isnan(study.Correlations()[0].within));
  study.Add(Thought({0, 0, 1}), {{"signal", {1, 2, 3}}});
  EXPECT_EQ(study.Correlations()[0].thoughts, 1);
  EXPECT_NEAR(study.Correlations()[0].within, std::sqrt(0.75), 1e-12);
}

TEST(ImportanceStudy, TrendsAreRanksByPlace) {
  ImportanceStudy study;
  std::vector<double> rising(32);
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<double>(i * i);
  std::vector<uint8_t> late(32, 0);
  late.back() = 1;
  study.Add(Thought(late), {{"signal", rising}});
  const std::vector<double> trend = study.Trends()[0];
  ASSERT_EQ(trend.size(), size_t{ImportanceStudy::kTrendBins});
  EXPECT_NEAR(trend.front(), 0.5 / 31, 1e-12);
  EXPECT_NEAR(trend.back(), 30.5 / 31, 1e-12);
  EXPECT_EQ(study.ImportanceTrend().front(), 0);
  EXPECT_EQ(study.ImportanceTrend().back(), 0.5);
}

}  // namespace
}  // namespace ebb
