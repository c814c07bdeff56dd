#include "apps/lab/profile/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace ebb::cli {
namespace {

ProfiledRun RunOf(std::vector<double> importance, size_t num_steps = 4) {
  ProfiledRun run;
  run.prompt_tokens = 2;
  run.importance = std::move(importance);
  run.tokens.resize(run.importance.size());
  run.steps.resize(num_steps);
  run.result.finish_reason = FinishReason::kLength;
  run.result.decode_steps = static_cast<int>(num_steps);
  return run;
}

double Sum(const ProfileJson& values) {
  double sum = 0;
  for (const auto& value : values) sum += value.get<double>();
  return sum;
}

TEST(ImportanceFigureTest, TopAndBottomSharesAreThoseOfTheTokens) {
  // The best 2 of 10 tokens get 60 % of the attention, and the lowest 5 together 5 %.
  const std::vector<ProfiledRun> runs = {RunOf({30, 1, 1, 1, 1, 1, 10, 10, 15, 30})};
  const ProfileJson figure = ImportanceFigure(runs);
  EXPECT_NEAR(figure["top_20_percent"]["mean"].get<double>(), 0.6, 1e-12);
  EXPECT_NEAR(figure["bottom_50_percent"]["mean"].get<double>(), 0.05, 1e-12);
  EXPECT_EQ(figure["tokens"], 10);
  EXPECT_NEAR(Sum(figure["share_of_tokens"]), 1, 1e-12);
  EXPECT_NEAR(figure["cdf"].back().get<double>(), 1, 1e-12);
  EXPECT_NEAR(figure["top_share_captures"].back().get<double>(), 1, 1e-12);
  EXPECT_EQ(figure["cdf"].size(), figure["edges"].size());
}

// In a run of n tokens, importance is relative to 1/n, so that runs of different lengths can be
// combined.
TEST(ImportanceFigureTest, LengthsOfRunsDoNotMatter) {
  const std::vector<ProfiledRun> runs = {RunOf({1, 1, 1, 1}), RunOf(std::vector<double>(40, 7))};
  const ProfileJson figure = ImportanceFigure(runs);
  int used = 0;
  for (const auto& share : figure["share_of_tokens"]) used += share.get<double>() > 0;
  EXPECT_EQ(used, 1);
}

TEST(ImportanceFigureTest, ARunWithoutADecodeStepCountsForNothing) {
  const std::vector<ProfiledRun> runs = {RunOf({0, 0, 0}, 0)};
  const ProfileJson figure = ImportanceFigure(runs);
  EXPECT_EQ(figure["tokens"], 0);
  EXPECT_TRUE(figure["top_20_percent"]["mean"].is_null());
  EXPECT_TRUE(figure["bottom_50_percent"]["median"].is_null());
}

// The top 20 % of 2 tokens are two fifths of the best token.
TEST(ImportanceFigureTest, OfFewTokensTheLastOneOfAShareCountsInPart) {
  const std::vector<ProfiledRun> runs = {RunOf({1, 3})};
  const ProfileJson figure = ImportanceFigure(runs);
  EXPECT_NEAR(figure["top_20_percent"]["mean"].get<double>(), 0.3, 1e-12);
  EXPECT_NEAR(figure["bottom_50_percent"]["mean"].get<double>(), 0.25, 1e-12);
  EXPECT_EQ(figure["top_share_captures"][0], 0);
  EXPECT_NEAR(figure["top_share_captures"][100].get<double>(), 1, 1e-12);
}

TEST(ImportanceFigureTest, TokensWithoutAttentionAreCountedApartAndInTheLowestBin) {
  const std::vector<ProfiledRun> runs = {RunOf({0, 1, 1, 2})};
  const ProfileJson figure = ImportanceFigure(runs);
  EXPECT_EQ(figure["tokens_without_attention"], 1);
  EXPECT_EQ(figure["share_of_tokens"][0], 0.25);
}

TEST(PositionFigureTest, LongSequencesAreAveragedIntoBins) {
  std::vector<double> importance(1000, 1);
  importance[999] = 1001;
  const std::vector<ProfiledRun> runs = {RunOf(importance)};
  const ProfileJson figure = PositionFigure(runs);
  EXPECT_EQ(figure["tokens_per_bin"], 8);
  EXPECT_EQ(figure["position"].size(), 125u);
  EXPECT_NEAR(figure["importance"][0].get<double>(), 0.5, 1e-12);
  EXPECT_GT(figure["importance"][124].get<double>(), 60);
}

TEST(OverlapFigureTest, StepsWithoutOneBeforeAreLeftOut) {
  ProfiledRun run = RunOf({1, 1});
  run.steps[1].overlap = 0.5;
  run.steps[2].overlap = 1;
  const std::vector<ProfiledRun> runs = {run};
  const ProfileJson figure = OverlapFigure(runs);
  EXPECT_TRUE(figure["overlap"][0].is_null());
  EXPECT_EQ(figure["mean"], 0.75);
}

TEST(TopHalfFigureTest, StepsOfAllRunsCountAlike) {
  std::vector<ProfiledRun> runs = {RunOf({1, 1}), RunOf({1, 1})};
  runs[0].top_half[0] = {.steps = 3, .shares = 3};
  runs[1].top_half[0] = {.steps = 1, .shares = 0};
  runs[1].top_half[1] = {.steps = 2, .shares = 0.5};
  const ProfileJson figure = TopHalfFigure(runs);
  EXPECT_EQ(figure["distance"], ProfileJson({1, 2}));
  EXPECT_EQ(figure["share"], ProfileJson({0.75, 0.25}));
}

TEST(OverlapFigureTest, WithoutTwoStepsThereIsNoMean) {
  const std::vector<ProfiledRun> runs = {RunOf({1, 1}, 1)};
  EXPECT_TRUE(OverlapFigure(runs)["mean"].is_null());
}

TEST(RecurrenceFigureTest, SharesAndThePercentileAreOfAllTokens) {
  ProfiledRun one = RunOf({1}), other = RunOf({1});
  one.intervals = {0, 1, 1, 2, 3};
  other.intervals = {4, 5, 6, 40, 100};
  const std::vector<ProfiledRun> runs = {one, other};
  const ProfileJson figure = RecurrenceFigure(runs);
  EXPECT_EQ(figure["tokens"], 10);
  EXPECT_EQ(figure["interval"].dump(), "[1,2,4,8,16,32,64,128]");
  EXPECT_EQ(figure["share_below"].dump(), "[0.1,0.3,0.5,0.8,0.8,0.8,0.9,1.0]");
  EXPECT_NEAR(figure["recurring"].get<double>(), 0.7, 1e-12);
  EXPECT_EQ(figure["percentile_80"], 6);
}

TEST(RecurrenceFigureTest, WithoutADecodeStepThereIsNone) {
  const std::vector<ProfiledRun> runs = {RunOf({}, 0)};
  const ProfileJson figure = RecurrenceFigure(runs);
  EXPECT_EQ(figure["tokens"], 0);
  EXPECT_TRUE(figure["percentile_80"].is_null());
}

TEST(RetainedFigureTest, GroupsAreMeansOverTheRuns) {
  ProfiledRun one = RunOf({1}, 2), other = RunOf({1}, 2);
  one.retained = {1.0, 0.5};
  other.retained = {0.5, 0.5};
  one.steps[0].rows = {10, 0, 0, 0};
  one.steps[1].rows = {3, 1, 1, 5};
  other.steps[0].rows = {10, 0, 0, 0};
  other.steps[1].rows = {10, 0, 0, 30};
  const std::vector<ProfiledRun> runs = {one, other};
  const ProfileJson figure = RetainedFigure(runs, 1);
  EXPECT_EQ(figure["share"].dump(), "[0.75,0.5]");
  EXPECT_EQ(figure["compression"].dump(), "[1.0,3.0]");
  EXPECT_EQ(RetainedFigure({}, 0)["share"].dump(), "[]");
}

TEST(TierFigureTest, TheLongestRunIsShownToItsLastStep) {
  ProfiledRun run = RunOf({1}, 300);
  for (int i = 0; i < 300; ++i) run.steps[i].rows = {i, 0, 0, 2 * i};
  const std::vector<ProfiledRun> runs = {RunOf({1}, 5), run};
  const ProfileJson figure = TierFigure(runs);
  EXPECT_EQ(figure["steps_per_point"], 3);
  EXPECT_EQ(figure["step"].back(), 299);
  EXPECT_EQ(figure["rows"]["T0"].back(), 299);
  EXPECT_EQ(figure["rows"]["T3"].back(), 598);
}

TEST(CostFigureTest, PartsAddUpToTheStep) {
  ProfiledRun run = RunOf({1}, 2);
  run.steps[0].times = {.matmul = 2, .attention = 1, .sampling = 1};
  run.steps[1].times = {.matmul = 4, .io_wait = 2};
  const std::vector<ProfiledRun> runs = {run};
  const ProfileJson figure = CostFigure(runs);
  EXPECT_EQ(figure["steps"], 2);
  EXPECT_EQ(figure["mean_step_seconds"], 5);
  EXPECT_EQ(figure["mean_seconds"]["matmul"], 3);
  EXPECT_EQ(figure["seconds"]["io_wait"][1], 2);
  EXPECT_NEAR(Sum(figure["mean_seconds"]), 5, 1e-12);
}

TEST(TransferFigureTest, RatesAreBytesBySeconds) {
  const std::vector<Transfer> transfers = {{Tier::kT0, Tier::kT1, 4, 1000, 0.5}};
  ProfiledRun run = RunOf({1});
  run.steps[1].moves.rows_down = 3;
  const std::vector<ProfiledRun> runs = {run};
  const ProfileJson figure = TransferFigure(transfers, runs);
  EXPECT_EQ(figure["measured"][0]["bytes_per_second"], 2000);
  EXPECT_EQ(figure["in_runs"].size(), 1u);
}

}  // namespace
}  // namespace ebb::cli
