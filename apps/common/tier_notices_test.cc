#include "apps/common/tier_notices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AnnouncerTest : public testing::Test {
 protected:
  AnnouncerTest() : notices_(options_) {}
  std::vector<std::string> OnStep(const StepReport& step) {
    std::vector<std::string> said;
    notices_.OnStep(step, [&](const auto& announcement) { said.push_back(announcement.sentence); });
    return said;
  }
  std::vector<std::string> LookAtSteps(int count, double wait_share) {
    std::vector<std::string> said;
    for (int i = 0; i < count; ++i) {
      StepReport step;
      step.compute_seconds = 0.9;
      step.policy_seconds = 0.1;
      step.io_wait_seconds = wait_share;
      for (std::string& sentence : OnStep(step)) said.push_back(std::move(sentence));
    }
    return said;
  }

  CliOptions options_;
  TierNotices notices_;
};

StepReport Compressed() {
  StepReport step;
  step.moves.rows_compressed = 3;
  return step;
}

StepReport Evicted() {
  StepReport step;
  step.rows_evicted = 3;
  return step;
}

TEST_F(AnnouncerTest, TheFirstCompressedRowIsAnnouncedOnce) {
  options_.engine.tiers = EngineTiers{.t2_type = CompressedType::kInt4};
  options_.session.policy.tiers = TierShares{.t2_share = 0.5};
  EXPECT_THAT(OnStep({}), IsEmpty());
  EXPECT_THAT(OnStep(Compressed()), ElementsAre(HasSubstr("(--t2 50%:int4)")));
  EXPECT_THAT(OnStep(Compressed()), IsEmpty());
}

TEST_F(AnnouncerTest, APolicyWithABudgetIsTheCauseOfEvictionsBesideTiers) {
  options_.session.policy = {
      .name = "h2o", .budget = *ParseBudget("64"), .tiers = TierShares{.t2_share = 0.5}};
  EXPECT_THAT(OnStep(Evicted()), ElementsAre(HasSubstr("(--policy h2o, --budget of 64 rows)")));
}

TEST_F(AnnouncerTest, TheFirstEvictedRowIsAnnouncedOnceWithTheOptionThatDidIt) {
  options_.session.policy.tiers = TierShares{.evict_share = 0.1};
  EXPECT_THAT(OnStep(Evicted()), ElementsAre(HasSubstr("(--evict 10%)")));
  EXPECT_THAT(OnStep(Evicted()), IsEmpty());
}

TEST_F(AnnouncerTest, ADraftLosesNothing) {
  options_.session.lossless = LosslessOptions();
  options_.session.policy.tiers = TierShares{.evict_share = 0.1};
  EXPECT_THAT(OnStep(Evicted()), IsEmpty());
  EXPECT_THAT(OnStep(Compressed()), IsEmpty());
}

TEST_F(AnnouncerTest, WithoutAShareItIsTheCapsThatEvict) {
  options_.session.policy.tiers = TierShares();
  EXPECT_THAT(OnStep(Evicted()), ElementsAre(HasSubstr("(the caps of --t0 and --t1)")));
}

TEST_F(AnnouncerTest, WithoutTiersItIsThePolicyThatEvicts) {
  options_.session.policy.name = "h2o";
  options_.session.policy.budget = *ParseBudget("512");
  EXPECT_THAT(OnStep(Evicted()), ElementsAre(HasSubstr("(--policy h2o, --budget of 512 rows)")));
}

TEST_F(AnnouncerTest, WhatMemoryChoseIsSaidToBeSo) {
  options_.session.policy.tiers = TierShares{.evict_share = 0.1};
  options_.fit.chosen = true;
  EXPECT_THAT(OnStep(Evicted()), ElementsAre(HasSubstr("(--evict 10%, chosen for --memory)")));
}

TEST_F(AnnouncerTest, ADiskThatHoldsAWindowOfStepsUpIsAnnouncedOnce) {
  EXPECT_THAT(LookAtSteps(TierNotices::kDiskBoundSteps - 1, 0.6), IsEmpty());
  EXPECT_THAT(LookAtSteps(1, 0.6), ElementsAre(HasSubstr("60 % of the last 32 steps")));
  EXPECT_THAT(LookAtSteps(2 * TierNotices::kDiskBoundSteps, 0.9), IsEmpty());
}

TEST_F(AnnouncerTest, ADiskThatKeepsUpIsNot) {
  EXPECT_THAT(LookAtSteps(4 * TierNotices::kDiskBoundSteps, 0.4), IsEmpty());
}

TEST_F(AnnouncerTest, ProgramsReadALineOfJson) {
  EXPECT_EQ(AnnouncementText({"t3", "gone"}, options_), "ebb: gone");
  options_.json = true;
  EXPECT_EQ(AnnouncementText({"t3", "gone"}, options_),
            R"({"announcement":"t3","sentence":"gone"})");
}

}  // namespace
}  // namespace ebb::cli
