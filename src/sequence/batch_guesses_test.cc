#include "src/sequence/batch_guesses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb {
namespace {

using testing::ElementsAre;
using Chances = std::vector<std::vector<double>>;

TEST(DivideGuesses, TakesAllWhereTokensCostNothing) {
  const auto free = [](size_t) { return 1.0; };
  EXPECT_THAT(DivideGuesses(Chances{{0.9, 0.8}, {}, {0.1}}, free), ElementsAre(2, 0, 1));
  EXPECT_THAT(DivideGuesses(Chances{{}, {}}, free), ElementsAre(0, 0));
}

TEST(DivideGuesses, TakesNoneThatLengthensTheStepOfANeighbour) {
  const auto dear = [](size_t num_tokens) {
    return 1 + 0.1 * (static_cast<double>(num_tokens) - 2);
  };
  EXPECT_THAT(DivideGuesses(Chances{{1, 1, 1, 1}, {}}, dear), ElementsAre(0, 0));
  // If the neighbour gains as well, both get guesses.
  EXPECT_THAT(DivideGuesses(Chances{{1, 1}, {1, 1}}, dear), ElementsAre(2, 2));
}

TEST(DivideGuesses, StopsWhereAGuessCostsMoreThanItYields) {
  const auto half = [](size_t num_tokens) {
    return 1 + 0.25 * (static_cast<double>(num_tokens) - 2);
  };
  EXPECT_THAT(DivideGuesses(Chances{{0.95, 0.9, 0.1}, {0.95, 0.9, 0.1}}, half), ElementsAre(2, 2));
  EXPECT_THAT(DivideGuesses(Chances{{0.4}, {0.4}}, half), ElementsAre(0, 0));
}

TEST(BatchTimes, LearnsWhatATokenCosts) {
  BatchTimes times;
  EXPECT_FALSE(times.KnowsPlain(4));
  times.AddPlain(4, 9);  // builds the graph
  EXPECT_FALSE(times.KnowsPlain(4));
  times.AddPlain(4, 1);
  ASSERT_TRUE(times.KnowsPlain(4));
  EXPECT_GT(times.Ratio(4, 8), 1.5);
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
