#include "src/policy/score_loops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "hwy/targets.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

using testing::ElementsAre;

constexpr size_t kMostRows = 70;  // several vectors of any instruction set, and a rest

TEST(AddMass, RoundsTheProductAndTheSumAtEveryLength) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(0, 1);
  for (size_t num_rows = 0; num_rows < kMostRows; ++num_rows) {
    std::vector<float> mass(num_rows), scores(num_rows), expected(num_rows);
    for (size_t i = 0; i < num_rows; ++i) {
      mass[i] = number(random);
      scores[i] = number(random);
      const volatile float product = 0.3f * mass[i];
      expected[i] = scores[i] + product;
    }
    AddMass(mass, 0.3f, scores);
    EXPECT_EQ(scores, expected);
  }
}

TEST(AddMass, CountsWhatIsNotFiniteAsZeroAtEveryPlace) {
  for (size_t at = 0; at < kMostRows; ++at) {
    for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
      std::vector<float> mass(kMostRows, 1.0f), scores(kMostRows, 3.0f);
      mass[at] = bad;
      AddMass(mass, 2, scores);
      for (size_t i = 0; i < kMostRows; ++i) EXPECT_EQ(scores[i], i == at ? 3.0f : 5.0f);
    }
  }
}

TEST(EntropyBits, IsThatOfTheProbabilitiesAtEveryLength) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-28, 0);
  for (size_t num_rows = 0; num_rows < kMostRows; ++num_rows) {
    std::vector<float> mass(num_rows);
    double expected = 0;
    for (float& x : mass) {
      x = std::pow(10.0f, exponent(random));
      expected -= double{x} * std::log2(double{x});
    }
    EXPECT_NEAR(EntropyBits(mass), expected, 4e-6 * (1 + expected)) << num_rows;
  }
}

// On each instruction set that this machine has.
TEST(EntropyBits, HasTheSameBitsInEveryInstructionSet) {
  std::mt19937 random(2);
  std::uniform_real_distribution<float> number(0, 0.01f);
  for (const size_t num_rows : {1, 7, 16, 33, 69, 4099}) {
    std::vector<float> mass(num_rows);
    for (float& x : mass) x = number(random);
    const float expected = EntropyBits(mass);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      EXPECT_EQ(EntropyBits(mass), expected) << hwy::TargetName(target) << " " << num_rows;
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
  }
}

TEST(EntropyBits, WhatIsNoProbabilityAddsNothingAtEveryPlace) {
  for (size_t at = 0; at < kMostRows; ++at) {
    for (const float bad : {kNan, kInfinity, -kInfinity, -0.5f, 0.0f, 1e-31f, 2.0f}) {
      std::vector<float> mass(kMostRows, 0.5f);
      mass[at] = bad;
      EXPECT_NEAR(EntropyBits(mass), 0.5 * (kMostRows - 1), 1e-4) << bad;
    }
  }
}

TEST(LowestScore, FindsItAtEveryPlaceOfEveryLength) {
  for (size_t num_rows = 1; num_rows < kMostRows; ++num_rows) {
    for (size_t at = 0; at < num_rows; ++at) {
      std::vector<float> scores(num_rows);
      std::iota(scores.begin(), scores.end(), -3.0f);
      scores[at] = -5;
      EXPECT_EQ(LowestScore(scores), -5);
    }
  }
}

TEST(LowestScore, PassesOverNan) {
  for (size_t at = 0; at < kMostRows; ++at) {
    std::vector<float> scores(kMostRows, kNan);
    EXPECT_EQ(LowestScore(scores), kInfinity);
    scores[at] = 7;
    EXPECT_EQ(LowestScore(scores), 7);
  }
}

std::vector<uint8_t> MarksOfHighest(std::span<const float> scores, size_t count) {
  std::vector<uint8_t> marks(scores.size(), 0);
  MarkHighest(scores, count, marks);
  return marks;
}

TEST(MarkHighest, MarksAsManyAsAreAskedForWhereNoneAreEqual) {
  std::mt19937 random(5);
  std::normal_distribution<float> number;
  for (size_t num_scores = 0; num_scores < kMostRows; ++num_scores) {
    std::vector<float> scores(num_scores);
    for (float& x : scores) x = number(random);
    std::vector<float> sorted = scores;
    std::ranges::sort(sorted, std::greater<>());
    for (size_t count = 0; count <= num_scores; ++count) {
      const auto marks = MarksOfHighest(scores, count);
      for (size_t i = 0; i < num_scores; ++i) {
        ASSERT_EQ(marks[i], count > 0 && scores[i] >= sorted[count - 1] ? 1 : 0) << i;
      }
    }
  }
}

TEST(MarkHighest, OfEqualScoresTheFirst) {
  const std::vector<float> scores = {-3, 2, 2, -3, 2, -0.0f, 0.0f, kInfinity, -kInfinity};
  EXPECT_THAT(MarksOfHighest(scores, 1), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 2), ElementsAre(0, 1, 0, 0, 0, 0, 0, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 3), ElementsAre(0, 1, 1, 0, 0, 0, 0, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 4), ElementsAre(0, 1, 1, 0, 1, 0, 0, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 5), ElementsAre(0, 1, 1, 0, 1, 1, 0, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 7), ElementsAre(1, 1, 1, 0, 1, 1, 1, 1, 0));
  EXPECT_THAT(MarksOfHighest(scores, 9), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 1));
  const std::vector<float> same(40, kInfinity);
  const auto marks = MarksOfHighest(same, 39);
  EXPECT_EQ(std::accumulate(marks.begin(), marks.end(), 0), 39);
  EXPECT_EQ(marks.back(), 0);
}

TEST(MarkHighest, LeavesOtherMarksAsTheyAreInEveryInstructionSet) {
  std::vector<float> scores(45);
  std::iota(scores.begin(), scores.end(), -20.0f);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    std::vector<uint8_t> marks(45, 0);
    marks[3] = 1;
    MarkHighest(scores, 7, marks);
    for (size_t i = 0; i < marks.size(); ++i) {
      EXPECT_EQ(marks[i], i == 3 || i >= 38 ? 1 : 0) << hwy::TargetName(target) << " " << i;
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

TEST(LowestScore, OfNothingIsInfinite) { EXPECT_EQ(LowestScore({}), kInfinity); }

}  // namespace
}  // namespace ebb
