#include "lab/eval/fidelity_statistics.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

std::vector<float> Logs(std::vector<float> probabilities) {
  for (float& p : probabilities) p = std::log(p);
  return probabilities;
}

TEST(CompareLogitsTest, GivesTheKlOfKnownDistributions) {
  const StepComparison step = CompareLogits(Logs({0.5f, 0.5f}), Logs({0.25f, 0.75f}), 1);
  EXPECT_NEAR(step.kl, 0.5 * std::log(2.0) + 0.5 * std::log(0.5 / 0.75), 1e-7);
  EXPECT_NEAR(*step.nll, -std::log(0.75), 1e-7);
  EXPECT_NEAR(*step.nll_full, std::log(2.0), 1e-7);
  EXPECT_FALSE(step.same_top);
}

TEST(CompareLogitsTest, IsZeroForEqualDistributionsWhateverTheirOffset) {
  const std::vector<float> logits = {3, -2, 0.5f, 7};
  EXPECT_EQ(CompareLogits(logits, logits, {}).kl, 0);
  std::vector<float> shifted = logits;
  for (float& logit : shifted) logit += 1000;
  const StepComparison step = CompareLogits(logits, shifted, {});
  EXPECT_NEAR(step.kl, 0, 1e-9);
  EXPECT_TRUE(step.same_top);
  EXPECT_FALSE(step.nll.has_value());
}

TEST(CompareLogitsTest, TellsTheLargestDifferenceOfTwoLogits) {
  const StepComparison step =
      CompareLogits(std::vector{0.0f, 1.0f, -kInfinity}, std::vector{0.5f, -1.0f, -kInfinity}, {});
  EXPECT_DOUBLE_EQ(step.max_logit_difference, 2);
}

TEST(CompareLogitsTest, SurvivesLogitsThatOverflowExp) {
  const StepComparison step =
      CompareLogits(std::vector{1e30f, 0.0f}, std::vector{1e30f, -1e30f}, 0);
  EXPECT_EQ(step.kl, 0);
  EXPECT_EQ(*step.nll, 0);
}

// 50,000 probabilities of about 2e-5: sums in single precision would lose the small difference.
TEST(CompareLogitsTest, KeepsSmallDifferencesOverALargeVocabulary) {
  constexpr int kTokens = 50000;
  constexpr double kDifference = 0.1;
  std::vector<float> full(kTokens, 0), setting(kTokens, 0);
  setting[7] = static_cast<float>(kDifference);
  const double expected =
      std::log((kTokens - 1 + std::exp(kDifference)) / kTokens) - kDifference / kTokens;
  EXPECT_NEAR(CompareLogits(full, setting, {}).kl, expected, expected * 1e-3);
}

TEST(CompareLogitsTest, IgnoresWhatTheFullCacheRulesOut) {
  const StepComparison step =
      CompareLogits(std::vector{0.0f, -kInfinity}, std::vector{0.0f, 0.0f}, 0);
  EXPECT_NEAR(step.kl, std::log(2.0), 1e-12);
  EXPECT_TRUE(step.Finite());
}

TEST(CompareLogitsTest, IsNotFiniteWithoutADistribution) {
  const std::vector<float> good = {0, 1};
  const std::vector<std::vector<float>> bad = {
      {NAN, 1}, {0, NAN}, {kInfinity, 0}, {-kInfinity, -kInfinity}};
  for (const std::vector<float>& logits : bad) {
    EXPECT_FALSE(CompareLogits(logits, good, {}).Finite());
    EXPECT_FALSE(CompareLogits(good, logits, {}).Finite());
  }
  // If the setting rules out a token that the full cache considers possible, the divergence is
  // infinite.
  EXPECT_FALSE(CompareLogits(good, std::vector{0.0f, -kInfinity}, {}).Finite());
  EXPECT_FALSE(CompareLogits(std::vector{0.0f, -kInfinity}, good, 1).Finite());
}

TEST(CompareLogitsTest, TakesTheLowerOfEquallyLikelyTokens) {
  EXPECT_TRUE(CompareLogits(std::vector{1.0f, 1.0f}, std::vector{2.0f, 2.0f}, {}).same_top);
  EXPECT_FALSE(CompareLogits(std::vector{1.0f, 1.0f}, std::vector{1.0f, 2.0f}, {}).same_top);
}

StepComparison Step(double kl) {
  return {.kl = kl, .same_top = kl < 1, .nll = 2 + kl, .nll_full = 2};
}

TEST(FidelitySumsTest, BootstrapOfAConstantIsAPoint) {
  FidelitySums sums(64);
  for (int i = 0; i < 1000; ++i) sums.Add(Step(0.5));
  sums.EndWindow();
  const FidelityReport report = sums.Report({});
  EXPECT_EQ(report.tokens, 1000);
  EXPECT_EQ(report.windows, 1);
  EXPECT_EQ(report.mean_kl.value, 0.5);
  EXPECT_EQ(report.mean_kl.interval.low, 0.5);
  EXPECT_EQ(report.mean_kl.interval.high, 0.5);
  EXPECT_EQ(report.max_kl, 0.5);
  EXPECT_EQ(report.top1.interval.low, 1);
  EXPECT_NEAR(report.perplexity.value, std::exp(2.5), 1e-12);
  EXPECT_NEAR(report.perplexity_full.interval.high, std::exp(2.0), 1e-12);
}

TEST(FidelitySumsTest, IntervalCoversTheMeanOfIndependentSteps) {
  constexpr int kTrials = 200;
  int covered = 0;
  std::mt19937 random(1);
  std::exponential_distribution<double> kl(2.0);
  for (int trial = 0; trial < kTrials; ++trial) {
    FidelitySums sums(8);
    for (int i = 0; i < 400; ++i) sums.Add(Step(kl(random)));
    FidelityOptions options;
    options.seed = trial;
    options.resamples = 300;
    const Interval interval = sums.Report(options).mean_kl.interval;
    covered += interval.low <= 0.5 && 0.5 <= interval.high ? 1 : 0;
  }
  // 95 % of 200, less some for chance and for only 50 blocks of a skewed distribution.
  EXPECT_GE(covered, 175);
  EXPECT_LT(covered, kTrials);
}

// Steps that come in runs of equal ones contain less information than their number, so that the
// interval must be wider.
TEST(FidelitySumsTest, BlocksWidenTheIntervalOfStepsThatResembleEachOther) {
  FidelitySums single(1), blocks(64);
  std::mt19937 random(2);
  std::uniform_real_distribution<double> kl;
  for (int run = 0; run < 30; ++run) {
    const double value = kl(random);
    for (int i = 0; i < 64; ++i) {
      single.Add(Step(value));
      blocks.Add(Step(value));
    }
  }
  const Interval narrow = single.Report({}).mean_kl.interval;
  const Interval wide = blocks.Report({}).mean_kl.interval;
  EXPECT_GT(wide.high - wide.low, 4 * (narrow.high - narrow.low));
}

TEST(FidelitySumsTest, IsTheSameForASeedAndAnotherForAnother) {
  FidelitySums sums(4);
  for (int i = 0; i < 100; ++i) sums.Add(Step(i * 0.01));
  FidelityOptions options;
  const Interval first = sums.Report(options).mean_kl.interval;
  EXPECT_EQ(sums.Report(options).mean_kl.interval.low, first.low);
  options.seed = 1;
  EXPECT_NE(sums.Report(options).mean_kl.interval.low, first.low);
}

TEST(FidelitySumsTest, CountsStepsThatAreNotFiniteApart) {
  FidelitySums sums(2);
  sums.Add(Step(0.25));
  sums.Add(Step(NAN));
  sums.Add(Step(std::numeric_limits<double>::infinity()));
  sums.Add(Step(0.75));
  const FidelityReport report = sums.Report({});
  EXPECT_EQ(report.tokens, 4);
  EXPECT_EQ(report.not_finite, 2);
  EXPECT_EQ(report.mean_kl.value, 0.5);
  EXPECT_EQ(report.max_kl, 0.75);
}

TEST(FidelitySumsTest, HasNoFiguresWithoutSteps) {
  FidelitySums sums(2);
  sums.Add(Step(NAN));
  const FidelityReport report = sums.Report({});
  EXPECT_EQ(report.tokens, 1);
  for (const double figure : {report.mean_kl.value, report.mean_kl.interval.low, report.max_kl,
                              report.top1.value, report.perplexity.value}) {
    EXPECT_TRUE(std::isnan(figure));
  }
}

TEST(FidelitySumsTest, BlocksEndWithTheWindow) {
  // Two windows have three equal steps each. If a block spanned both, no draw could consist of the
  // first alone.
  FidelitySums sums(100);
  for (const double kl : {0.0, 1.0}) {
    for (int i = 0; i < 3; ++i) sums.Add(Step(kl));
    sums.EndWindow();
  }
  const FidelityReport report = sums.Report({});
  EXPECT_EQ(report.windows, 2);
  EXPECT_EQ(report.mean_kl.interval.low, 0);
  EXPECT_EQ(report.mean_kl.interval.high, 1);
}

}  // namespace
}  // namespace ebb
