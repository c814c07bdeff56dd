#include "apps/lab/profile/recurrence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

using testing::ElementsAre;

TEST(RecurrenceTracker, KeepsTheLongestWayBetweenTwoActiveSteps) {
  RecurrenceTracker tracker;
  tracker.Observe(std::vector<double>{0.5, 0.5, 0}, 1);        // two prompt tokens and a new one
  tracker.Observe(std::vector<double>{1, 0, 0, 0}, 1);         // one more token
  tracker.Observe(std::vector<double>{0, 0, 0, 1, 0}, 1);      // one more token
  tracker.Observe(std::vector<double>{0.5, 0, 0.5, 0, 0}, 1);  // no new token
  EXPECT_THAT(tracker.intervals(), ElementsAre(2, 1, 4, 2, 0));
}

TEST(RecurrenceTracker, CountsWhatReachesTheShareOfTheSum) {
  RecurrenceTracker tracker;
  tracker.Observe(std::vector<double>{2e-4, 1.9e-4, 2}, 2);
  EXPECT_THAT(tracker.intervals(), ElementsAre(1, 0, 1));
}

}  // namespace
}  // namespace ebb::cli
