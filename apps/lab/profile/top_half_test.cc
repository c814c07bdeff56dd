#include "apps/lab/profile/top_half.h"

#include <gtest/gtest.h>

#include <vector>

namespace ebb::cli {
namespace {

TEST(TopHalfHistory, ComparesWithStepsAtEveryDistance) {
  TopHalfHistory history;
  history.Observe(std::vector<double>{4, 3, 2, 1});  // top half: 0 and 1
  history.Observe(std::vector<double>{4, 1, 2, 3});  // top half: 0 and 3
  history.Observe(std::vector<double>{1, 4, 2, 3});  // top half: 1 and 3
  EXPECT_EQ(history.kept()[0].steps, 2);             // shares: one half, one half
  EXPECT_EQ(history.kept()[0].shares, 0.5 + 0.5);
  EXPECT_EQ(history.kept()[1].steps, 1);  // the first step's top half has 1, not 3
  EXPECT_EQ(history.kept()[1].shares, 0.5);
  EXPECT_EQ(history.kept()[2].steps, 0);
}

TEST(TopHalfHistory, TokensThatWereNotThereYetCountForNothing) {
  TopHalfHistory history;
  history.Observe(std::vector<double>{2, 1});
  history.Observe(std::vector<double>{3, 1, 2, 4});  // top half: 0 and 3, which is new
  EXPECT_EQ(history.kept()[0].steps, 1);
  EXPECT_EQ(history.kept()[0].shares, 1);
  history.Observe(std::vector<double>{0, 0, 0, 0, 1});  // the other tokens were evicted
  EXPECT_EQ(history.kept()[0].steps, 1);
}

TEST(TopHalfHistory, AnOddOneBelongsToTheTopAndTheEarlierOfEquals) {
  TopHalfHistory history;
  history.Observe(std::vector<double>{1, 1, 1});     // top half: 0 and 1
  history.Observe(std::vector<double>{0, 2, 1, 2});  // top half: 1 and 3
  EXPECT_EQ(history.kept()[0].shares, 1);
  history.Observe(std::vector<double>{0, 1, 2, 2});  // top half: 2 and 3
  EXPECT_EQ(history.kept()[0].shares, 1 + 0.5);
  EXPECT_EQ(history.kept()[1].shares, 0);
}

TEST(TopHalfHistory, ReachesBackToTheFarthestStep) {
  TopHalfHistory history;
  for (int step = 0; step < 1026; ++step) {
    history.Observe(step == 0 ? std::vector<double>{1, 2} : std::vector<double>{2, 1});
  }
  const auto& farthest = history.kept()[TopHalfHistory::kDistances - 1];
  EXPECT_EQ(farthest.steps, 2);  // steps 1,024 and 1,025
  EXPECT_EQ(farthest.shares, 1);
}

}  // namespace
}  // namespace ebb::cli
