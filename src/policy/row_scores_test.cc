#include "src/policy/row_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

// A group whose scores are 0, 1, 2, ...
RowScores Counting(size_t num_rows) {
  RowScores scores(1);
  const std::span<float> rows = scores.Append(0, num_rows);
  std::iota(rows.begin(), rows.end(), 0.0f);
  return scores;
}

TEST(RowScores, NewRowsAreZeroAndStandAtTheEndOfTheirGroupAlone) {
  RowScores scores(2);
  scores.Append(1, 2)[1] = 5;
  EXPECT_THAT(scores.Append(1, 1), ElementsAre(0));
  EXPECT_THAT(scores[1], ElementsAre(0, 5, 0));
  EXPECT_THAT(scores[0], IsEmpty());
}

TEST(RowScores, SetAllToZeroKeepsTheRows) {
  RowScores scores = Counting(3);
  scores.SetAllToZero();
  EXPECT_THAT(scores[0], ElementsAre(0, 0, 0));
}

TEST(RowScores, RetainKeepsTheNamedRowsInOrder) {
  const std::vector<std::vector<uint32_t>> cases = {
      {},           {0, 1, 2, 3, 4}, {0},       {4},    {1, 2, 3, 4},
      {0, 1, 2, 3}, {0, 1, 3, 4},    {0, 2, 4}, {1, 3}, {0, 1, 4},
  };
  for (const std::vector<uint32_t>& kept : cases) {
    RowScores scores = Counting(5);
    scores.Retain(0, kept);
    EXPECT_THAT(scores[0], ElementsAreArray(kept));
  }
}

TEST(RowScores, RetainOfAnEmptyGroupIsEmpty) {
  RowScores scores(1);
  scores.Retain(0, {});
  EXPECT_THAT(scores[0], IsEmpty());
}

TEST(RowScores, SurviveAnySequenceOfAppendsAndRetains) {
  std::mt19937 random(7);
  RowScores scores(1);
  std::vector<float> naive;
  for (int step = 0; step < 2000; ++step) {
    const size_t added = random() % (step % 100 == 0 ? 3000 : 3);
    for (float& score : scores.Append(0, added)) {
      score = static_cast<float>(random() % 1000);
      naive.push_back(score);
    }
    const uint32_t keep_of_16 = random() % 4 == 0 ? random() % 17 : 16;
    std::vector<uint32_t> kept;
    std::vector<float> left;
    for (uint32_t i = 0; i < naive.size(); ++i) {
      if (random() % 16 >= keep_of_16) continue;
      kept.push_back(i);
      left.push_back(naive[i]);
    }
    naive = left;
    scores.Retain(0, kept);
    ASSERT_TRUE(std::equal(naive.begin(), naive.end(), scores[0].begin(), scores[0].end()));
  }
}

}  // namespace
}  // namespace ebb
