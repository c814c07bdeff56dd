#include "src/policy/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

using ::testing::ElementsAreArray;

struct SelectionCase {
  const char* name;
  std::vector<float> scores;
  std::vector<RowRange> candidates;
  size_t count;
  std::vector<uint32_t> expected;
};

TEST(RowSelection, FollowsTheTable) {
  const SelectionCase cases[] = {
      {"nothing asked", {3, 1, 2}, {{0, 3}}, 0, {}},
      {"no candidates", {3, 1, 2}, {}, 2, {}},
      {"an empty range", {3, 1, 2}, {{1, 1}}, 1, {}},
      {"the lowest of all", {3, 1, 2}, {{0, 3}}, 1, {1}},
      {"the two lowest, ascending by row", {3, 2, 9, 1}, {{0, 4}}, 2, {1, 3}},
      {"only candidates go", {0, 5, 4, 0, 6, 0}, {{1, 3}, {4, 5}}, 1, {2}},
      {"only candidates go, two", {0, 5, 4, 0, 6, 0}, {{1, 3}, {4, 5}}, 2, {1, 2}},
      {"more asked than there are", {0, 5, 4, 0, 6, 0}, {{1, 3}, {4, 5}}, 9, {1, 2, 4}},
      {"of equal scores the lower position stays", {7, 7, 7, 7}, {{0, 4}}, 1, {3}},
      {"of equal scores the lower positions stay", {7, 7, 7, 7}, {{0, 4}}, 2, {2, 3}},
      {"a tie at the edge only", {1, 5, 5, 5, 0}, {{0, 5}}, 3, {0, 3, 4}},
      {"a tie across ranges", {1, 9, 9, 1}, {{0, 1}, {3, 4}}, 1, {3}},
      {"zeros of both signs tie", {0.0f, -0.0f, 1}, {{0, 3}}, 1, {1}},
      {"zeros of both signs tie, two", {-0.0f, 0.0f, 0.0f}, {{0, 3}}, 2, {1, 2}},
      {"negative infinity goes first", {1, -kInfinity, 2}, {{0, 3}}, 1, {1}},
      {"a NaN stays longest", {kNan, 5, kNan, 7}, {{0, 4}}, 1, {1}},
      {"NaN stay longest", {kNan, 5, kNan, 7}, {{0, 4}}, 2, {1, 3}},
      {"among NaN the lower position stays", {kNan, kNan, kNan}, {{0, 3}}, 1, {2}},
      {"among NaN the lower position stays, two", {kNan, kNan, kNan}, {{0, 3}}, 2, {1, 2}},
      {"a NaN is as high as infinity", {kInfinity, kNan, kInfinity}, {{0, 2}}, 1, {1}},
  };
  RowSelection selection;
  for (const SelectionCase& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_THAT(selection.First(c.scores, c.candidates, c.count), ElementsAreArray(c.expected));
  }
}

// Sorts all candidates by the rule, without NaN.
std::vector<uint32_t> Naive(const std::vector<float>& scores,
                            const std::vector<RowRange>& candidates, size_t count) {
  std::vector<std::pair<float, int64_t>> order;  // (score, -row)
  for (const RowRange& range : candidates) {
    for (size_t i = range.begin; i < range.end; ++i) {
      order.emplace_back(scores[i], -static_cast<int64_t>(i));
    }
  }
  std::sort(order.begin(), order.end());
  order.resize(std::min(count, order.size()));
  std::vector<uint32_t> rows;
  rows.reserve(order.size());
  for (const auto& [score, negative_row] : order) {
    rows.push_back(static_cast<uint32_t>(-negative_row));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

TEST(RowSelection, AgreesWithSortingEverything) {
  std::mt19937 random(11);
  RowSelection selection;
  for (int trial = 0; trial < 3000; ++trial) {
    const size_t num_rows = random() % 700;
    const uint32_t num_values = trial % 2 == 0 ? 5 : 1u << 30;  // many ties, or hardly any
    std::vector<float> scores(num_rows);
    for (float& score : scores) score = static_cast<float>(random() % num_values);
    std::vector<RowRange> candidates;
    for (size_t begin = random() % 40; begin < num_rows;) {
      const size_t end = std::min<size_t>(num_rows, begin + random() % 400);
      candidates.push_back({begin, end});
      begin = end + random() % 40;
    }
    const size_t count = trial % 3 == 0 ? 1 : random() % (num_rows + 2);
    ASSERT_THAT(selection.First(scores, candidates, count),
                ElementsAreArray(Naive(scores, candidates, count)));
  }
}

std::vector<uint32_t> Sorted(std::span<const uint32_t> rows) {
  std::vector<uint32_t> sorted(rows.begin(), rows.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

TEST(RowSelection, CutsWhereFirstWould) {
  std::mt19937 random(12);
  RowSelection selection, other;
  const float odd[] = {kNan, kInfinity, -kInfinity, 0.0f, -0.0f, 1, -1, -kNan};
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> scores(random() % 300);
    for (float& score : scores) {
      score = trial % 2 == 0 ? odd[random() % 8] : static_cast<float>(random()) - 2e9f;
    }
    std::vector<RowRange> candidates;
    for (size_t begin = random() % 40; begin < scores.size();) {
      const size_t end = std::min<size_t>(scores.size(), begin + random() % 200);
      candidates.push_back({begin, end});
      begin = end + random() % 40;
    }
    const size_t num_candidates = CountRows(candidates);
    std::vector<size_t> ends(random() % 4);
    for (size_t& end : ends) end = random() % (num_candidates + 1);
    std::sort(ends.begin(), ends.end());

    const std::span<const uint32_t> cut = selection.Cut(scores, candidates, ends);
    ASSERT_EQ(cut.size(), num_candidates);
    ends.push_back(num_candidates);
    for (const size_t end : ends) {
      ASSERT_THAT(Sorted(cut.first(end)), ElementsAreArray(other.First(scores, candidates, end)));
    }
  }
}

TEST(RankAmong, IsThePlaceInTheOrderInWhichRowsGo) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores = {3, kInfinity, 1, std::nanf(""), 1, -0.0F, 0.0F, 9};
  const std::vector<RowRange> candidates = {{0, 4}, {4, 7}};
  RowSelection selection;
  const size_t num_candidates = CountRows(candidates);
  for (size_t count = 1; count <= num_candidates; ++count) {
    for (const uint32_t row : selection.First(scores, candidates, count)) {
      EXPECT_LE(RankAmong(scores, candidates, row), count) << "row " << row;
    }
  }
  EXPECT_EQ(RankAmong(scores, candidates, 6), 1u);
  EXPECT_EQ(RankAmong(scores, candidates, 3), num_candidates - 1);
  EXPECT_EQ(RankAmong(scores, candidates, 1), num_candidates);
}

TEST(CountRows, AddsTheLengthsOfTheRanges) {
  EXPECT_EQ(CountRows({}), 0u);
  const RowRange ranges[] = {{0, 3}, {5, 5}, {6, 10}};
  EXPECT_EQ(CountRows(ranges), 7u);
}

}  // namespace
}  // namespace ebb
