#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/budgets_for_test.h"
#include "src/policy/placements.h"

namespace ebb {
namespace {

using ::testing::ElementsAreArray;

Result<std::unique_ptr<Placement>> TryMakeSinksWindow(Budget budget, std::optional<int> sinks,
                                                      std::optional<int> window,
                                                      std::optional<int> interval = std::nullopt) {
  return MakeSinksWindowPlacement({.policy = "streaming",
                                   .budget_text = FormatBudget(budget),
                                   .budget = budget,
                                   .sinks = sinks,
                                   .window = window,
                                   .interval = interval});
}

struct SinksWindowCase {
  const char* name;
  Budget budget;
  std::optional<int> sinks;
  std::optional<int> window;
  std::vector<Position> positions;
  std::vector<Position> evicted;
};

TEST(SinksWindowPlacement, FollowsTheTable) {
  const SinksWindowCase cases[] = {
      {"no rows", {}, 2, 3, {}, {}},
      {"sinks and window hold all", {}, 2, 3, {0, 1, 2, 3, 4}, {}},
      {"the oldest after the sinks goes", {}, 2, 3, {0, 1, 2, 3, 4, 5}, {2}},
      {"a chunk goes at once", {}, 2, 3, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {2, 3, 4, 5}},
      {"with a gap from earlier steps", {}, 2, 3, {0, 1, 7, 8, 9, 10}, {7}},
      {"sinks are positions, not rows", {}, 2, 3, {1, 7, 8, 9, 10}, {7}},
      {"sinks that are gone do not come back", {}, 2, 3, {7, 8, 9, 10}, {7}},
      {"without sinks it is a window", {}, 0, 2, {0, 1, 2}, {0}},
      {"shorter than the sinks", {}, 4, 1, {0, 1}, {}},
      {"a budget is sinks and window", Rows(4), 2, {}, {0, 1, 2, 3, 4}, {2}},
      {"50 % of five tokens after the sinks is three",
       Percent(50),
       1,
       {},
       {0, 1, 2, 3, 4, 5},
       {1, 2}},
  };
  for (const SinksWindowCase& c : cases) {
    SCOPED_TRACE(c.name);
    auto made = TryMakeSinksWindow(c.budget, c.sinks, c.window);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    const Position next = c.positions.empty() ? 0 : c.positions.back() + 1;
    std::vector<Move> moves;
    (*made)->Place({.positions = c.positions, .next_position = next}, &moves);
    std::vector<Position> evicted;
    for (const Move& move : moves) {
      EXPECT_EQ(move.to, Tier::kT3);
      evicted.push_back(c.positions[move.row]);
    }
    EXPECT_THAT(evicted, ElementsAreArray(c.evicted));
  }
}

TEST(SinksWindowPlacement, NeedsNoScores) {
  EXPECT_FALSE((*TryMakeSinksWindow({}, 4, 8))->NeedsScores());
}

TEST(SinksWindowPlacement, IsDueWhenOverBudgetInPrefillAndOnTheInterval) {
  struct DueCase {
    int interval;
    StepKind kind;
    int64_t generated_tokens;
    size_t num_rows;
    bool due;
  };
  const DueCase cases[] = {
      {1, StepKind::kDecode, 7, 6, true},  {1, StepKind::kDecode, 7, 5, false},
      {1, StepKind::kPrefill, 0, 6, true}, {1, StepKind::kPrefill, 0, 5, false},
      {4, StepKind::kDecode, 7, 6, false}, {4, StepKind::kDecode, 8, 6, true},
      {4, StepKind::kPrefill, 7, 6, true},
  };
  for (const DueCase& c : cases) {
    const auto placement = *TryMakeSinksWindow({}, 2, 3, c.interval);
    EXPECT_EQ(
        placement->Due({.generated_tokens = c.generated_tokens, .step_kind = c.kind}, c.num_rows),
        c.due);
  }
}

TEST(SinksWindowPlacement, DefaultsAreThoseOfThePublishedCode) {
  EXPECT_EQ((*TryMakeSinksWindow({}, {}, {}))->Name(),
            "sinks_window:sinks=4,window=512,interval=1");
  EXPECT_EQ((*TryMakeSinksWindow(Rows(1024), {}, {}))->Name(),
            "sinks_window:sinks=4,window=1020,interval=1");
  EXPECT_EQ((*TryMakeSinksWindow(Percent(25), 8, {}, 3))->Name(),
            "sinks_window:sinks=8,percent=25,interval=3");
}

TEST(SinksWindowPlacement, RefusesWhatContradictsTheBudget) {
  struct Refusal {
    Budget budget;
    std::optional<int> sinks;
    std::optional<int> window;
    const char* message;
  };
  const Refusal cases[] = {
      {Rows(4), {}, {}, "budget of 4 rows has no room for a window after 4 sinks"},
      {Rows(10),
       {},
       7,
       "policy \"streaming\": 4 sinks and a window of 7 are not the budget of 10 rows; leave one "
       "out"},
      {Percent(10),
       {},
       7,
       "policy \"streaming\": a budget in percent sets the window; give no window"},
      {{}, {}, 0, "policy \"streaming\": a window of 0 tokens hides the text"},
  };
  for (const Refusal& c : cases) {
    const Status status = TryMakeSinksWindow(c.budget, c.sinks, c.window).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
  EXPECT_TRUE(TryMakeSinksWindow(Rows(10), 3, 7).ok());
}

}  // namespace
}  // namespace ebb
