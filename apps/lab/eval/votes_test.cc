#include "apps/lab/eval/votes.h"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

TEST(Votes, TheMostFrequentAnswerCounts) {
  Votes votes;
  EXPECT_FALSE(votes.MajorityIsRight());
  EXPECT_FALSE(votes.AnyIsRight());
  votes.Add(false, "5");
  votes.Add(false, "5");
  votes.Add(true, "12");
  EXPECT_FALSE(votes.MajorityIsRight());
  EXPECT_TRUE(votes.AnyIsRight());
  votes.Add(true, "12.0");
  votes.Add(true, "twelve");
  EXPECT_TRUE(votes.MajorityIsRight()) << "all right answers are one";
  votes.Add(false, "10/2");
  votes.Add(false, "5.0");
  EXPECT_FALSE(votes.MajorityIsRight()) << "5, 10/2 and 5.0 are one answer";
}

TEST(Votes, TiesGoToTheAnswerThatSortsFirst) {
  Votes votes;
  votes.Add(false, "5");
  votes.Add(true, "12");
  EXPECT_TRUE(votes.MajorityIsRight());
  Votes other;
  other.Add(true, "5");
  other.Add(false, "12");
  EXPECT_FALSE(other.MajorityIsRight());
}

TEST(Votes, NoAnswerIsNoVote) {
  Votes votes;
  votes.Add(false, "");
  votes.Add(false, "");
  votes.Add(true, "7");
  EXPECT_TRUE(votes.MajorityIsRight());
}

}  // namespace
}  // namespace ebb::cli
