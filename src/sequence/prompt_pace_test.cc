#include "src/sequence/prompt_pace.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(PromptPace, BeginsSmallAndThenFollowsWhatStepsTook) {
  PromptPace pace;
  EXPECT_EQ(pace.TokensWithin(0.2), PromptPace::kFirst);
  pace.RecordRead(100, 0.1);
  EXPECT_EQ(pace.TokensWithin(0.2), 150u) << "a quarter of the time is kept for slower steps";
  EXPECT_EQ(pace.TokensWithin(0.0001), PromptPace::kFewest);
  EXPECT_EQ(pace.TokensWithin(-1), PromptPace::kFewest);
}

TEST(PromptPace, ASlowStepCountsAtOnceAndAFastOneLittleByLittle) {
  PromptPace pace;
  pace.RecordRead(100, 0.1);
  pace.RecordRead(100, 0.4);
  EXPECT_EQ(pace.TokensWithin(0.2), 37u);
  pace.RecordRead(100, 0.1);
  EXPECT_GT(pace.TokensWithin(0.2), 37u);
  EXPECT_LT(pace.TokensWithin(0.2), 75u);
  for (int i = 0; i < 50; ++i) pace.RecordRead(100, 0.1);
  EXPECT_GE(pace.TokensWithin(0.2), 149u);
}

TEST(PromptPace, ASingleTokenTellsNothing) {
  PromptPace pace;
  pace.RecordRead(1, 10);
  EXPECT_EQ(pace.TokensWithin(0.2), PromptPace::kFirst);
}

}  // namespace
}  // namespace ebb
