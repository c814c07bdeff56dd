#include "ebb/signals.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

TEST(SignalNeeds, AreEmptyUntilSomethingIsDeclared) {
  EXPECT_TRUE(SignalNeeds{}.Empty());
  // Mass in prefill refines a need for mass; alone it asks for nothing.
  EXPECT_TRUE(SignalNeeds{.mass_in_prefill = true}.Empty());
  EXPECT_FALSE(SignalNeeds{.mass = MassNeed::kSummed}.Empty());
  EXPECT_FALSE(SignalNeeds{.num_recent_queries = 1}.Empty());
  EXPECT_FALSE(SignalNeeds{.hidden_layers = {0}}.Empty());
  EXPECT_FALSE(SignalNeeds{.keys = true}.Empty());
  EXPECT_FALSE(SignalNeeds{.keys_before_rope = true}.Empty());
  EXPECT_FALSE(SignalNeeds{.values = true}.Empty());
  EXPECT_FALSE(SignalNeeds{.eviction_logits = true}.Empty());
}

TEST(Union, OfNothingIsEmpty) { EXPECT_TRUE(Union({}, {}).Empty()); }

TEST(Union, TakesTheFinerMassTheLongerHistoryAndEveryFlag) {
  const SignalNeeds a = {.mass = MassNeed::kPerQueryHead, .num_recent_queries = 8, .keys = true};
  const SignalNeeds b = {.mass = MassNeed::kSummed,
                         .mass_in_prefill = true,
                         .num_recent_queries = 3,
                         .keys_before_rope = true,
                         .values = true,
                         .eviction_logits = true};
  for (const SignalNeeds& both : {Union(a, b), Union(b, a)}) {
    EXPECT_EQ(both.mass, MassNeed::kPerQueryHead);
    EXPECT_TRUE(both.mass_in_prefill);
    EXPECT_EQ(both.num_recent_queries, 8);
    EXPECT_TRUE(both.keys);
    EXPECT_TRUE(both.keys_before_rope);
    EXPECT_TRUE(both.values);
    EXPECT_TRUE(both.eviction_logits);
  }
  EXPECT_EQ(Union({.mass = MassNeed::kPerKvHead}, {.mass = MassNeed::kSummed}).mass,
            MassNeed::kPerKvHead);
}

TEST(Union, ListsEveryHiddenLayerOnceInOrder) {
  EXPECT_THAT(Union({.hidden_layers = {21, 10}}, {.hidden_layers = {3, 10}}).hidden_layers,
              ElementsAre(3, 10, 21));
}

}  // namespace
}  // namespace ebb
