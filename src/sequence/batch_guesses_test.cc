#include "src/sequence/batch_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace ebb {
namespace {

using testing::ElementsAre;
using Chances = std::vector<std::vector<double>>;

double Sum(std::span<const size_t> given) {
  return static_cast<double>(std::accumulate(given.begin(), given.end(), size_t{0}));
}

TEST(DivideGuesses, TakesAllWhereTokensCostNothing) {
  const auto free = [](std::span<const size_t>) { return 1.0; };
  EXPECT_THAT(DivideGuesses(Chances{{0.9, 0.8}, {}, {0.1}}, free), ElementsAre(2, 0, 1));
  EXPECT_THAT(DivideGuesses(Chances{{}, {}}, free), ElementsAre(0, 0));
}

TEST(DivideGuesses, TakesNoneThatLengthensTheStepOfANeighbour) {
  const auto dear = [](std::span<const size_t> given) { return 1 + 0.1 * Sum(given); };
  EXPECT_THAT(DivideGuesses(Chances{{1, 1, 1, 1}, {}}, dear), ElementsAre(0, 0));
  // If the neighbour gains as well, both get guesses.
  EXPECT_THAT(DivideGuesses(Chances{{1, 1}, {1, 1}}, dear), ElementsAre(2, 2));
}

TEST(DivideGuesses, StopsWhereAGuessCostsMoreThanItYields) {
  const auto half = [](std::span<const size_t> given) { return 1 + 0.25 * Sum(given); };
  EXPECT_THAT(DivideGuesses(Chances{{0.95, 0.9, 0.1}, {0.95, 0.9, 0.1}}, half), ElementsAre(2, 2));
  EXPECT_THAT(DivideGuesses(Chances{{0.4}, {0.4}}, half), ElementsAre(0, 0));
}

// The first sequence has a draft, which makes the second wait too.
TEST(DivideGuesses, CountsTheTimeOfDrafts) {
  double draft = 0.2;
  const auto ratio = [&](std::span<const size_t> given) {
    return 1 + 0.01 * Sum(given) + draft * static_cast<double>(given[0]);
  };
  EXPECT_THAT(DivideGuesses(Chances{{0.9, 0.8}, {0.9, 0.8}}, ratio), ElementsAre(2, 2));
  EXPECT_THAT(DivideGuesses(Chances{{0.9, 0.8}, {}}, ratio), ElementsAre(0, 0));
  draft = 0.9;
  EXPECT_THAT(DivideGuesses(Chances{{0.9, 0.8}, {0.95, 0.92}}, ratio), ElementsAre(0, 2))
      << "only the guesses without a draft pay";
}

TEST(BatchTimes, LearnsWhatADraftCosts) {
  BatchTimes times;
  times.AddPlain(4, 9);
  times.AddPlain(4, 1);
  EXPECT_NEAR(times.DraftRatio(4, 3), 0.15, 0.01) << "expected";
  times.AddDraft(99, 3, 99);  // builds graphs
  for (int i = 0; i < 40; ++i) times.AddDraft(0.4, 3, 0.6);
  EXPECT_NEAR(times.DraftRatio(4, 1), 0.4, 0.01);
  EXPECT_NEAR(times.DraftRatio(4, 3), 0.8, 0.01);
  for (int i = 0; i < 260; ++i) times.AddPlain(4, 1);
  EXPECT_LT(times.DraftRatio(4, 3), 0.5) << "drafts are tried again in the end";
}

TEST(BatchTimes, LearnsWhatATokenCosts) {
  BatchTimes times;
  EXPECT_FALSE(times.KnowsPlain(4));
  times.AddPlain(4, 9);  // builds the graph
  EXPECT_FALSE(times.KnowsPlain(4));
  times.AddPlain(4, 1);
  ASSERT_TRUE(times.KnowsPlain(4));
  EXPECT_GT(times.Ratio(4, 8), 1.3);
  for (int i = 0; i < 40; ++i) times.AddWithGuesses(4, 8, i == 0 ? 9 : 1.1);
  EXPECT_NEAR(times.Ratio(4, 8), 1.1, 0.01);
  EXPECT_NEAR(times.Ratio(4, 6), 1.05, 0.01);
  EXPECT_EQ(times.Ratio(4, 4), 1);
  EXPECT_GT(times.Ratio(4, 64), 5);  // another kind of step
  times.AddPlain(1000, 1);
  EXPECT_FALSE(times.KnowsPlain(1000));
}

}  // namespace
}  // namespace ebb
