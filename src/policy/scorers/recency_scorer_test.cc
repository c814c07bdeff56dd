#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

TEST(RecencyScorer, AScoreIsThePositionOfItsRow) {
  const std::unique_ptr<Scorer> scorer =
      MakeRecencyScorer({.shape = {.num_layers = 2}, .granularity = Granularity::kLayer});
  EXPECT_EQ(scorer->Name(), "recency");
  EXPECT_TRUE(scorer->Needs().Empty());
  scorer->Append(1, std::vector<Position>{0, 1, 2});
  scorer->Append(1, std::vector<Position>{3});
  scorer->ObserveGroup(1, {}, {});
  scorer->EndFirstPrefill();
  EXPECT_THAT(scorer->Scores(1), ElementsAre(0, 1, 2, 3));
  scorer->Retain(1, std::vector<uint32_t>{0, 2});
  scorer->Append(1, std::vector<Position>{16777216});
  EXPECT_THAT(scorer->Scores(1), ElementsAre(0, 2, 16777216));
  EXPECT_TRUE(scorer->Scores(0).empty());
}

}  // namespace
}  // namespace ebb
