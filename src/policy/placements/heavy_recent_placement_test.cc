#include <algorithm>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/budgets_for_test.h"
#include "src/policy/placements.h"

namespace ebb {
namespace {

using ::testing::ElementsAreArray;

using ParamMap = std::map<std::string, double, std::less<>>;

Result<std::unique_ptr<Placement>> TryMakeHeavyRecent(Budget budget, ParamMap params,
                                                      std::optional<int> interval = std::nullopt) {
  return MakeHeavyRecentPlacement({.policy = "h2o",
                                   .budget_text = FormatBudget(budget),
                                   .budget = budget,
                                   .interval = interval,
                                   .params = {.numbers = std::move(params)}});
}

std::vector<uint32_t> PlaceHeavyRecent(Placement* placement, const std::vector<float>& scores,
                                       Position next_position) {
  std::vector<Position> positions(scores.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<Move> moves;
  placement->Place({.positions = positions, .scores = scores, .next_position = next_position},
                   &moves);
  std::vector<uint32_t> evicted;
  for (const Move& move : moves) {
    EXPECT_EQ(move.to, Tier::kT3);
    evicted.push_back(move.row);
  }
  return evicted;
}

struct HeavyRecentCase {
  const char* name;
  Budget budget;
  ParamMap params;
  Position num_tokens;
  std::vector<float> scores;
  std::vector<uint32_t> evicted;
};

TEST(HeavyRecentPlacement, FollowsTheTable) {
  const ParamMap two_three = {{"heavy", 2}, {"recent", 3}};
  const HeavyRecentCase cases[] = {
      {"up to the budget all stay", {}, two_three, 5, {1, 2, 3, 4, 5}, {}},
      {"one over: the lowest but the recent goes", {}, two_three, 6, {5, 1, 4, 0, 0, 0}, {1}},
      {"the prompt is not protected", {}, two_three, 6, {0, 1, 4, 0, 0, 0}, {0}},
      {"of equal scores the lower position stays", {}, two_three, 6, {1, 1, 1, 0, 0, 0}, {2}},
      {"a chunk over: many go at once",
       {},
       two_three,
       9,
       {5, 1, 4, 9, 2, 3, 0, 0, 0},
       {1, 2, 4, 5}},
      {"without heavy rows it is a window",
       {},
       {{"heavy", 0}, {"recent", 2}},
       4,
       {9, 9, 0, 0},
       {0, 1}},
      {"without recent rows only the score counts",
       {},
       {{"heavy", 2}, {"recent", 0}},
       4,
       {3, 2, 1, 9},
       {1, 2}},
      {"a budget splits evenly", Rows(4), {}, 6, {1, 2, 3, 4, 0, 0}, {0, 1}},
      {"the odd row is a recent one", Rows(3), {}, 4, {1, 2, 0, 0}, {0}},
      {"one row is the newest", Rows(1), {}, 3, {9, 9, 0}, {0, 1}},
      {"heavy given, the rest is recent", Rows(4), {{"heavy", 1}}, 6, {1, 2, 3, 0, 0, 0}, {0, 1}},
      {"recent given, the rest is heavy", Rows(4), {{"recent", 1}}, 6, {1, 2, 3, 4, 5, 0}, {0, 1}},
      {"50 % of all tokens so far", Percent(50), {}, 8, {1, 2, 3, 4, 0, 0}, {0, 1}},
      {"50 % of more tokens", Percent(50), {}, 12, {1, 2, 3, 4, 0, 0}, {}},
  };
  for (const HeavyRecentCase& c : cases) {
    SCOPED_TRACE(c.name);
    auto made = TryMakeHeavyRecent(c.budget, c.params);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_THAT(PlaceHeavyRecent(made->get(), c.scores, c.num_tokens), ElementsAreArray(c.evicted));
  }
}

TEST(HeavyRecentPlacement, AgreesWithSortingEverything) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const int heavy = random() % 20;
    const int recent = 1 + random() % 20;
    std::vector<float> scores(random() % 100);
    for (float& score : scores) score = static_cast<float>(random() % 30);
    std::vector<uint32_t> expected;
    if (static_cast<int>(scores.size()) > heavy + recent) {
      std::vector<uint32_t> others(scores.size() - recent);
      std::iota(others.begin(), others.end(), 0);
      std::stable_sort(others.begin(), others.end(),
                       [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
      expected.assign(others.begin() + heavy, others.end());
      std::sort(expected.begin(), expected.end());
    }
    auto placement = *TryMakeHeavyRecent({}, {{"heavy", heavy}, {"recent", recent}});
    ASSERT_THAT(PlaceHeavyRecent(placement.get(), scores, 0), ElementsAreArray(expected));
  }
}

TEST(HeavyRecentPlacement, IsDueWhenOverBudgetInPrefillAndOnTheInterval) {
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
    const auto placement = *TryMakeHeavyRecent({}, {{"heavy", 2}, {"recent", 3}}, c.interval);
    EXPECT_EQ(
        placement->Due({.generated_tokens = c.generated_tokens, .step_kind = c.kind}, c.num_rows),
        c.due);
  }
}

TEST(HeavyRecentPlacement, DefaultsAreThoseOfThePublishedCode) {
  EXPECT_EQ((*TryMakeHeavyRecent({}, {}))->Name(), "heavy_recent:heavy=4,recent=512,interval=1");
  EXPECT_EQ((*TryMakeHeavyRecent({}, {{"heavy", 64}}, 5))->Name(),
            "heavy_recent:heavy=64,recent=512,interval=5");
  EXPECT_EQ((*TryMakeHeavyRecent(Rows(1024), {}))->Name(),
            "heavy_recent:heavy=512,recent=512,interval=1");
  EXPECT_EQ((*TryMakeHeavyRecent(Percent(20), {}))->Name(), "heavy_recent:percent=20,interval=1");
  EXPECT_TRUE((*TryMakeHeavyRecent({}, {}))->NeedsScores());
}

TEST(HeavyRecentPlacement, OtherPoliciesHaveOtherDefaults) {
  const PlacementOptions options = {.policy = "p", .budget = Rows(1024)};
  const auto name_of = [&](PlacementFactory make) { return (*make(options))->Name(); };
  EXPECT_EQ(name_of(MakeVatpPlacement), "heavy_recent:heavy=512,recent=512,sinks=4,interval=1");
  EXPECT_EQ(name_of(MakeTovaPlacement),
            "heavy_recent:heavy=1024,recent=0,interval=1,prefill=dense");
  EXPECT_EQ(name_of(MakeRkvPlacement), "heavy_recent:heavy=1016,recent=8,interval=128");
  EXPECT_EQ(name_of(MakeLazyPlacement),
            "heavy_recent:heavy=960,recent=64,interval=64,prefill=dense");
  PlacementOptions lazy = {.policy = "p", .budget = Percent(25), .interval = 52};
  EXPECT_EQ((*MakeLazyPlacement(lazy))->Name(),
            "heavy_recent:percent=25,recent=52,interval=52,prefill=dense");
  PlacementOptions quarter = {
      .policy = "p",
      .budget = Rows(400),
      .params = {.numbers = {{"sinks", 4}}, .words = {{"split", "quarter"}}}};
  EXPECT_EQ((*MakeHeavyRecentPlacement(quarter))->Name(),
            "heavy_recent:heavy=300,recent=100,sinks=4,interval=1");
  quarter.budget = Rows(4000);
  EXPECT_EQ((*MakeHeavyRecentPlacement(quarter))->Name(),
            "heavy_recent:heavy=3872,recent=128,sinks=4,interval=1");
}

TEST(HeavyRecentPlacement, SinksStayAndCountAsHeavy) {
  const auto placement = *MakeHeavyRecentPlacement(
      {.policy = "h2o", .params = {.numbers = {{"heavy", 3}, {"recent", 1}, {"sinks", 2}}}});
  EXPECT_THAT(PlaceHeavyRecent(placement.get(), {0, 0, 3, 9, 2, 0}, 6), ElementsAreArray({2, 4}));
}

TEST(HeavyRecentPlacement, DensePrefillWaitsForADecodeStep) {
  const auto placement = *MakeTovaPlacement({.policy = "tova", .budget = Rows(4)});
  EXPECT_FALSE(placement->Due({.step_kind = StepKind::kPrefill}, 9));
  EXPECT_TRUE(placement->Due({.generated_tokens = 1}, 9));
}

TEST(HeavyRecentPlacement, RefusesBudgetsWithoutRoom) {
  const auto error = [](PlacementFactory make, const PlacementOptions& options) {
    return make(options).status().message();
  };
  EXPECT_EQ(error(MakeRkvPlacement, {.policy = "rkv", .budget_text = "8 rows", .budget = Rows(8)}),
            "policy \"rkv\": a budget of 8 rows has no room beside the 8 newest rows");
  EXPECT_EQ(error(MakeHeavyRecentPlacement,
                  {.policy = "h2o", .budget = Rows(8), .params = {.numbers = {{"sinks", 5}}}}),
            "policy \"h2o\": 5 sinks do not fit into 4 heavy rows");
  for (const PlacementFactory make : {MakeTovaPlacement, MakeRkvPlacement, MakeLazyPlacement}) {
    EXPECT_EQ(error(make, {.policy = "p"}),
              "policy \"p\" needs a budget: rows (1024), percent (25%) or bytes "
              "(64MiB)");
  }
}

TEST(HeavyRecentPlacement, RefusesSinksThatTakeAllHeavyRowsThatThereAreWithoutABudget) {
  const auto make = [](PlacementFactory factory, const Budget& budget, ParamMap params) {
    return factory({.policy = "p", .budget = budget, .params = {.numbers = std::move(params)}})
        .status();
  };
  const std::string why =
      "policy \"p\": without a budget its 4 heavy rows are its sinks, so that no score would "
      "decide; "
      "it needs a budget, or more than 4 heavy rows";
  const Status refused[] = {make(MakeVatpPlacement, {}, {}),
                            make(MakeVatpPlacement, {}, {{"recent", 64}}),
                            make(MakeHeavyRecentPlacement, {}, {{"sinks", 4}})};
  for (const Status& status : refused) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), why);
  }
  EXPECT_TRUE(make(MakeVatpPlacement, Percent(20), {}).ok());
  EXPECT_TRUE(make(MakeVatpPlacement, Rows(64), {}).ok());
  EXPECT_TRUE(make(MakeVatpPlacement, {}, {{"heavy", 64}}).ok());
  EXPECT_TRUE(make(MakeVatpPlacement, {}, {{"sinks", 0}}).ok());
  EXPECT_TRUE(make(MakeHeavyRecentPlacement, {}, {{"sinks", 3}}).ok());
}

TEST(HeavyRecentPlacement, RefusesSplitsThatAreNotTheBudget) {
  struct Refusal {
    Budget budget;
    ParamMap params;
    const char* message;
  };
  const Refusal cases[] = {
      {Rows(10),
       {{"heavy", 4}, {"recent", 5}},
       "policy \"h2o\": heavy and recent make 9 rows, the budget is 10 rows"},
      {Rows(10),
       {{"heavy", 11}},
       "policy \"h2o\": heavy and recent make 11 rows, the budget is 10 rows"},
      {Rows(10),
       {{"recent", 11}},
       "policy \"h2o\": heavy and recent make 11 rows, the budget is 10 rows"},
      {Percent(10),
       {{"recent", 11}},
       "policy \"h2o\": a budget in percent splits evenly, heavy= and recent= do not apply"},
      {{}, {{"heavy", 0}, {"recent", 0}}, "policy \"h2o\": heavy=0,recent=0 keeps no row"},
  };
  for (const Refusal& c : cases) {
    const Status status = TryMakeHeavyRecent(c.budget, c.params).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
  EXPECT_TRUE(TryMakeHeavyRecent(Rows(10), {{"heavy", 4}, {"recent", 6}}).ok());
}

}  // namespace
}  // namespace ebb
