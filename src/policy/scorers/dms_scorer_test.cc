#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"
#include "src/policy/scorers/shape_for_test.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

// A step of tokens from `first` on; logits [num_tokens, kv heads] of each layer.
struct LogitsStep {
  Position first = 0;
  std::vector<std::vector<float>> logits;

  void Show(Scorer* scorer, int group) const {
    StepSignals step = {.first_position = first,
                        .num_tokens = static_cast<int>(logits[0].size()) / kTwoLayers.num_kv_heads};
    for (const auto& of_layer : logits) step.eviction_logits.emplace_back(of_layer);
    std::vector<Position> positions;
    for (int t = 0; t < step.num_tokens; ++t) positions.push_back(first + t);
    scorer->Append(group, positions);
    scorer->ObserveGroup(group, {.num_new_rows = step.num_tokens}, step);
  }
};

std::unique_ptr<Scorer> MakeWith(int shift) {
  return MakeDmsScorer(
      {.shape = kTwoLayers, .granularity = Granularity::kHead, .eviction_shift = shift});
}

// A step in which group 0 shows these logits.
LogitsStep StepOf(Position first, const std::vector<float>& logits) {
  LogitsStep step = {first, {{}, {}}};
  for (const float logit : logits) {
    step.logits[0].insert(step.logits[0].end(), {logit, 7});
    step.logits[1].insert(step.logits[1].end(), {7, 7});
  }
  return step;
}

TEST(DmsScorer, ALogitDecidesOnTheTokenBefore) {
  const std::unique_ptr<Scorer> scorer = MakeWith(1);
  EXPECT_EQ(scorer->Name(), "dms");
  EXPECT_TRUE(scorer->Needs().eviction_logits);
  const LogitsStep prompt = {0, {{9, 9, 9, 9, 9, 9}, {9, 4, 9, -5, 9, 6}}};
  const LogitsStep next = {3, {{9, 9}, {9, 7}}};
  prompt.Show(scorer.get(), 3);  // layer 1, head 1
  EXPECT_THAT(scorer->Scores(3), ElementsAre(5, -6, 0));
  next.Show(scorer.get(), 3);
  EXPECT_THAT(scorer->Scores(3), ElementsAre(5, -6, -7, 0));
  EXPECT_TRUE(scorer->Scores(0).empty());
}

TEST(DmsScorer, AGroupOfSeveralHeadsTakesTheirMean) {
  const LogitsStep prompt = {0, {{9, 9, 1, 2}, {9, 9, 3, 8}}};
  const auto scores = [&](Granularity granularity, int group) {
    const auto scorer = MakeDmsScorer({.shape = kTwoLayers, .granularity = granularity});
    prompt.Show(scorer.get(), group);
    return scorer->Scores(group)[0];
  };
  EXPECT_EQ(scores(Granularity::kLayer, 1), -5.5f);
  EXPECT_EQ(scores(Granularity::kToken, 0), -3.5f);
}

TEST(DmsScorer, ARowThatIsGoneLeavesItsNeighbourAlone) {
  const auto scorer = MakeDmsScorer({.shape = kTwoLayers, .granularity = Granularity::kHead});
  LogitsStep{0, {{9, 0, 5, 0, 6, 0}, {0, 0, 0, 0, 0, 0}}}.Show(scorer.get(), 0);
  scorer->Retain(0, std::vector<uint32_t>{0, 1});
  LogitsStep{3, {{8, 0}, {0, 0}}}.Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-5, -6, 0));
}

TEST(DmsScorer, ALogitDecidesOnTheTokenThatTheShiftNames) {
  const auto own = MakeWith(0), third = MakeWith(3);
  EXPECT_EQ(own->Name(), "dms:shift=0");
  EXPECT_EQ(third->Name(), "dms:shift=3");
  const LogitsStep steps[] = {StepOf(0, {1, 2}), StepOf(2, {3}), StepOf(3, {4, -5})};
  for (const LogitsStep& step : steps) {
    for (Scorer* scorer : {own.get(), third.get()}) step.Show(scorer, 0);
  }
  EXPECT_THAT(own->Scores(0), ElementsAre(-1, -2, -3, -4, 5));
  EXPECT_THAT(third->Scores(0), ElementsAre(-4, 5, 0, 0, 0));
}

TEST(DmsScorer, RowsThatAreGoneInTheMidstShiftNoLogit) {
  const auto scorer = MakeWith(3);
  StepOf(0, {1, 2, 3, 4, 5}).Show(scorer.get(), 0);
  scorer->Retain(0, std::vector<uint32_t>{0, 2, 4});  // tokens 0, 2 and 4
  StepOf(5, {6}).Show(scorer.get(), 0);
  StepOf(6, {7, 8}).Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-4, -6, -8, 0, 0, 0));
}

// Tokens 3 and 4 decided on 1 and 2 and were taken back: they are decided on again.
TEST(DmsScorer, ARollBackTakesTheDecisionsOfItsTokensBack) {
  const auto scorer = MakeWith(2);
  StepOf(0, {1, 2, 3, 4, 5}).Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-3, -4, -5, 0, 0));
  scorer->Retain(0, std::vector<uint32_t>{0, 1, 2});
  StepOf(3, {8}).Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-3, -8, 0, 0));
  StepOf(4, {9}).Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-3, -8, -9, 0, 0));
}

// After a roll-back another token follows, and decides again.
TEST(DmsScorer, TheTokenThatFollowsAfterARollBackDecides) {
  const auto scorer = MakeDmsScorer({.shape = kTwoLayers, .granularity = Granularity::kHead});
  LogitsStep{0, {{9, 0, 5, 0, 6, 0}, {0, 0, 0, 0, 0, 0}}}.Show(scorer.get(), 0);
  scorer->Retain(0, std::vector<uint32_t>{0, 1});
  LogitsStep{2, {{-1, 0}, {0, 0}}}.Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(-5, 1, 0));
}

TEST(DmsScorer, WhatIsNoNumberMarksNothing) {
  const auto scorer = MakeDmsScorer({.shape = kTwoLayers, .granularity = Granularity::kHead});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  LogitsStep{0, {{0, 0, nan, 0, infinity, 0}, {0, 0, 0, 0, 0, 0}}}.Show(scorer.get(), 0);
  EXPECT_THAT(scorer->Scores(0), ElementsAre(0, 0, 0));
}

}  // namespace
}  // namespace ebb
