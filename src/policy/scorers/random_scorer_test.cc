#include <algorithm>
#include <cmath>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

const ModelShape kFourLayers = {.num_layers = 4, .num_q_heads = 4, .num_kv_heads = 2};

std::unique_ptr<Scorer> MakeRandom(uint64_t seed) {
  return MakeRandomScorer({.shape = kFourLayers, .granularity = Granularity::kLayer, .seed = seed});
}

std::vector<float> ScoresOf(uint64_t seed, int group, int count) {
  const std::unique_ptr<Scorer> scorer = MakeRandom(seed);
  std::vector<Position> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  scorer->Append(group, positions);
  const std::span<const float> scores = scorer->Scores(group);
  return {scores.begin(), scores.end()};
}

TEST(RandomScorer, NeedsNothingAndNamesItsSeed) {
  EXPECT_TRUE(MakeRandom(3)->Needs().Empty());
  EXPECT_EQ(MakeRandom(3)->Name(), "random:seed=3");
}

TEST(RandomScorer, NumbersAreUniformOverTheUnitInterval) {
  constexpr int kCount = 100000;
  std::vector<float> scores = ScoresOf(1, 0, kCount);
  std::sort(scores.begin(), scores.end());
  EXPECT_GE(scores.front(), 0.0f);
  EXPECT_LT(scores.back(), 1.0f);
  double largest_gap = 0;  // Kolmogorov-Smirnov; 1.95 / sqrt(n) is passed with p = 0.999
  for (int i = 0; i < kCount; ++i) {
    largest_gap = std::max(largest_gap, std::abs(scores[i] - (i + 0.5) / kCount));
  }
  EXPECT_LT(largest_gap, 1.95 / std::sqrt(kCount));
}

TEST(RandomScorer, NeighboursAndGroupsAndSeedsAreUnrelated) {
  constexpr int kCount = 20000;
  const auto correlation = [](std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (size_t i = 0; i < b.size(); ++i) sum += (a[i] - 0.5) * (b[i] - 0.5) * 12;
    return sum / b.size();
  };
  const std::vector<float> scores = ScoresOf(1, 0, kCount);
  const double bound = 4 / std::sqrt(kCount);
  EXPECT_LT(std::abs(correlation(scores, std::span(scores).subspan(1))), bound);
  EXPECT_LT(std::abs(correlation(scores, ScoresOf(1, 1, kCount))), bound);
  EXPECT_LT(std::abs(correlation(scores, ScoresOf(2, 0, kCount))), bound);
}

TEST(RandomScorer, ANumberDependsOnNeitherStepsNorRemovalsNorRollBack) {
  const std::vector<float> expected = ScoresOf(9, 1, 6);
  const std::unique_ptr<Scorer> scorer = MakeRandom(9);
  scorer->Append(1, std::vector<Position>{0, 1});
  scorer->Append(0, std::vector<Position>{0, 1, 2});
  scorer->Append(1, std::vector<Position>{2, 3, 4});
  scorer->ObserveGroup(1, {}, {});
  scorer->EndFirstPrefill();
  scorer->Retain(1, std::vector<uint32_t>{0, 2});
  EXPECT_THAT(scorer->Scores(1), ElementsAre(expected[0], expected[2]));
  scorer->Append(1, std::vector<Position>{3, 4, 5});
  EXPECT_THAT(scorer->Scores(1),
              ElementsAre(expected[0], expected[2], expected[3], expected[4], expected[5]));
}

// The rule is recorded in results under its name, so these numbers may change only with the name.
// From an independent calculation of SplitMix64's finaliser.
TEST(RandomScorer, TheFirstNumbersAreFixed) {
  EXPECT_THAT(ScoresOf(0, 0, 3),
              ElementsAre(2327157 * 0x1p-24f, 3093159 * 0x1p-24f, 11701324 * 0x1p-24f));
  EXPECT_EQ(ScoresOf(7, 3, 1001).back(), 6142001 * 0x1p-24f);
}

}  // namespace
}  // namespace ebb
