#include "ebb/engine.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(DefaultDraft, IsAWindowBehindSinksUnlessSomethingElseDrafts) {
  const PolicySpec draft = DefaultDraft({});
  EXPECT_EQ(draft.name, "streaming");
  EXPECT_EQ(draft.sinks, 20);
  EXPECT_EQ(draft.window, 512);
  const PolicySpec narrow = DefaultDraft({.sinks = 2, .window = 9});
  EXPECT_EQ(narrow.name, "streaming");
  EXPECT_EQ(narrow.sinks, 2);
  EXPECT_EQ(narrow.window, 9);
  EXPECT_EQ(DefaultDraft({.name = "h2o"}).name, "h2o");
  EXPECT_EQ(DefaultDraft({.budget = {Budget::Unit::kRows, 64}}).name, "full");
  EXPECT_EQ(DefaultDraft({.tiers = TierShares()}).name, "full");
}

}  // namespace
}  // namespace ebb
