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

namespace ebb {
namespace {

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
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

// Two of them.
struct Keys {
  std::vector<float> one, other;
};

// Exact in f16.
Keys RandomKeys(size_t dim, std::mt19937* random) {
  std::normal_distribution<float> number;
  Keys keys = {std::vector<float>(dim), std::vector<float>(dim)};
  for (float& x : keys.one) x = std::round(256 * number(*random)) / 256;
  for (float& x : keys.other) x = std::round(256 * number(*random)) / 256;
  return keys;
}

std::vector<uint16_t> RangesOf(const std::vector<Keys>& pages) {
  std::vector<uint16_t> ranges;
  for (const Keys& keys : pages) {
    const size_t numbers = 2 * keys.one.size();
    ranges.resize(ranges.size() + numbers);
    const std::span range = std::span(ranges).last(numbers);
    BeginRange(range);
    WidenRange(keys.one, range);
    WidenRange(keys.other, range);
  }
  return ranges;
}

double BoundOf(std::span<const float> q, const Keys& keys) {
  double bound = 0;
  for (size_t c = 0; c < q.size(); ++c) {
    bound += std::max(double{q[c]} * keys.one[c], double{q[c]} * keys.other[c]);
  }
  return bound;
}

TEST(BoundProducts, AreThoseOfEveryQueryAndPageAtEverySize) {
  std::mt19937 random(3);
  std::normal_distribution<float> number;
  for (const size_t dim : {1, 8, 15, 16, 64, 80, 128}) {
    for (size_t num_queries = 1; num_queries <= 9; ++num_queries) {
      constexpr size_t kPages = 5;
      std::vector<float> q(num_queries * dim), bounds(num_queries * kPages, -7);
      std::vector<Keys> pages;
      for (float& x : q) x = number(random);
      for (size_t page = 0; page < kPages; ++page) pages.push_back(RandomKeys(dim, &random));
      BoundProducts(q, dim, RangesOf(pages), bounds);
      for (size_t i = 0; i < bounds.size(); ++i) {
        const double expected =
            BoundOf(std::span(q).subspan(i / kPages * dim, dim), pages[i % kPages]);
        ASSERT_NEAR(bounds[i], expected, 1e-5 * static_cast<double>(dim)) << dim << " " << i;
      }
    }
  }
}

TEST(BoundProducts, HaveTheSameBitsInEveryInstructionSet) {
  std::mt19937 random(4);
  std::normal_distribution<float> number;
  for (const size_t dim : {64, 100}) {
    std::vector<float> q(3 * dim), expected(3 * 7);
    std::vector<Keys> pages;
    for (float& x : q) x = number(random);
    while (pages.size() < 7) pages.push_back(RandomKeys(dim, &random));
    pages[3].one[5] = 3e-7f;  // subnormal
    const std::vector<uint16_t> ranges = RangesOf(pages);
    BoundProducts(q, dim, ranges, expected);
    for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      std::vector<float> bounds(expected.size());
      BoundProducts(q, dim, ranges, bounds);
      EXPECT_EQ(bounds, expected) << hwy::TargetName(target) << " " << dim;
      hwy::SetSupportedTargetsForTest(0);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    }
  }
}

TEST(BoundProducts, WhatIsNotFiniteIsZero) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    std::vector<float> q(2 * 32, 1.0f), bounds(2 * 2);
    const std::vector<float> ones(32, 1.0f);
    const std::vector<uint16_t> ranges = RangesOf({{ones, ones}, {ones, ones}});
    q[5] = bad;
    BoundProducts(q, 32, ranges, bounds);
    EXPECT_THAT(bounds, ElementsAre(0, 0, 32, 32));
  }
}

TEST(Ranges, RoundToF16) {
  const auto bound = [](float key, float q) {
    std::vector<float> bounds(1);
    const std::vector<float> of_q = {q};
    BoundProducts(of_q, 1, RangesOf({{{key}, {key}}}), bounds);
    return bounds[0];
  };
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(bound(sign * 1.0f, 1), sign);
    EXPECT_EQ(bound(sign * (1 + 0x1p-11f), 1), sign);                    // a tie, to the even one
    EXPECT_EQ(bound(sign * (1 + 0x1.8p-10f), 1), sign * (1 + 0x1p-9f));  // the other way
    EXPECT_EQ(bound(sign * (1 + 0x1.1p-11f), 1), sign * (1 + 0x1p-10f));
    EXPECT_EQ(bound(sign * 0x1p-14f, 1), sign * 0x1p-14f);
    EXPECT_EQ(bound(sign * 0x1.8p-24f, 1), sign * 0x1p-23f);  // subnormal
    EXPECT_EQ(bound(sign * 2047.9f, 1), sign * 2048);
    EXPECT_EQ(bound(sign * 1e9f, 1), sign * 65504);
    EXPECT_EQ(bound(sign * kInfinity, 1), sign * 65504);
  }
  EXPECT_EQ(bound(kNan, 3), 0);
}

TEST(HighestReachedBy, IsReachedByJustAsManyWhereNoneAreEqual) {
  std::mt19937 random(5);
  std::normal_distribution<float> number;
  for (size_t num_scores = 1; num_scores < kMostRows; ++num_scores) {
    std::vector<float> scores(num_scores);
    for (float& x : scores) x = number(random);
    std::vector<float> sorted = scores;
    std::ranges::sort(sorted, std::greater<>());
    for (size_t count = 1; count <= num_scores; ++count) {
      const float least = HighestReachedBy(scores, count);
      ASSERT_LE(least, sorted[count - 1]);
      if (count < num_scores) {
        ASSERT_GT(least, sorted[count]);
      }
    }
  }
}

TEST(HighestReachedBy, OfEqualScoresIsThatScore) {
  const std::vector<float> scores = {-3, 2, 2, -3, 2, -0.0f, 0.0f, kInfinity, -kInfinity};
  EXPECT_EQ(HighestReachedBy(scores, 2), 2);
  EXPECT_EQ(HighestReachedBy(scores, 3), 2);
  EXPECT_EQ(HighestReachedBy(scores, 5), 0);
  EXPECT_EQ(HighestReachedBy(scores, 7), -3);
  EXPECT_EQ(HighestReachedBy(scores, 9), -kInfinity);
}

TEST(LowestScore, OfNothingIsInfinite) { EXPECT_EQ(LowestScore({}), kInfinity); }

}  // namespace
}  // namespace ebb
