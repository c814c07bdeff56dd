#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/budgets_for_test.h"
#include "src/policy/placements.h"
#include "src/policy/selection.h"

namespace ebb {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

std::unique_ptr<Placement> MakeBudget(Budget budget, int sinks, int window, int interval) {
  Result<std::unique_ptr<Placement>> made =
      MakeBudgetPlacement({.policy = "attention",
                           .budget_text = FormatBudget(budget),
                           .budget = budget,
                           .sinks = sinks,
                           .window = window,
                           .interval = interval});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  return *std::move(made);
}

// 'p' is a given token, anything else a generated one.
std::vector<TokenKind> Kinds(std::string_view text) {
  std::vector<TokenKind> kinds;
  for (const char c : text) {
    kinds.push_back(c == 'p' ? TokenKind::kGiven : TokenKind::kGenerated);
  }
  return kinds;
}

std::vector<Position> Place(Placement* placement, const std::vector<TokenKind>& kinds,
                            const std::vector<Position>& positions,
                            const std::vector<float>& scores) {
  std::vector<Move> moves;
  placement->Place({.positions = positions,
                    .scores = scores,
                    .kinds = kinds,
                    .next_position = static_cast<Position>(kinds.size()),
                    .generated_tokens = 64},
                   &moves);
  std::vector<Position> evicted;
  for (const Move& move : moves) {
    EXPECT_EQ(move.to, Tier::kT3);
    evicted.push_back(positions[move.row]);
  }
  return evicted;
}

struct BudgetCase {
  const char* name;
  Budget budget;
  const char* tokens;               // 2 sinks, a window of 3
  std::vector<Position> positions;  // alive; empty: all
  std::vector<float> scores;        // of the rows alive
  std::vector<Position> evicted;
};

TEST(BudgetPlacement, FollowsTheTable) {
  const BudgetCase cases[] = {
      {"within the budget", Rows(9), "ppxxxxxxx", {}, {9, 9, 9, 9, 1, 2, 9, 9, 9}, {}},
      {"the lowest unprotected row goes",
       Rows(8),
       "ppxxxxxxx",
       {},
       {0, 0, 0, 0, 2, 1, 0, 0, 0},
       {5}},
      {"protected rows stay when the budget asks for more",
       Rows(5),
       "ppxxxxxxx",
       {},
       {0, 0, 0, 0, 2, 1, 0, 0, 0},
       {4, 5}},
      {"of equal scores the lower position stays",
       Rows(8),
       "ppxxxxxxx",
       {},
       {0, 0, 0, 0, 1, 1, 0, 0, 0},
       {5}},
      {"rows that are gone do not count",
       Rows(8),
       "ppxxxxxxxx",
       {0, 1, 2, 3, 5, 6, 7, 8, 9},
       {0, 0, 0, 0, 3, 2, 0, 0, 0},
       {6}},
      {"a later user turn stays", Rows(9), "pxxxpxxxxx", {}, {0, 0, 0, 5, 0, 7, 6, 0, 0, 0}, {3}},
      {"100 % keeps all", Percent(100), "ppxxxxxxx", {}, {0, 0, 0, 0, 2, 1, 0, 0, 0}, {}},
      {"50 % of two", Percent(50), "ppxxxxxxx", {}, {0, 0, 0, 0, 2, 1, 0, 0, 0}, {5}},
      {"50 % of three is two", Percent(50), "ppxxxxxxxx", {}, {0, 0, 0, 0, 2, 1, 3, 0, 0, 0}, {5}},
      {"50 % of four ever, one of them gone",
       Percent(50),
       "ppxxxxxxxxx",
       {0, 1, 2, 3, 5, 6, 7, 8, 9, 10},
       {0, 0, 0, 0, 3, 2, 1, 0, 0, 0},
       {7}},
      {"50 % of four ever, two of them gone",
       Percent(50),
       "ppxxxxxxxxx",
       {0, 1, 2, 3, 5, 7, 8, 9, 10},
       {0, 0, 0, 0, 3, 1, 0, 0, 0},
       {}},
      {"1 % of three is one", Percent(1), "ppxxxxxxxx", {}, {0, 0, 0, 0, 2, 1, 3, 0, 0, 0}, {4, 5}},
      {"nothing was ever unprotected",
       Percent(10),
       "ppppppxxxx",
       {},
       {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
       {}},
      {"no rows at all", Rows(5), "", {}, {}, {}},
  };
  for (const BudgetCase& c : cases) {
    SCOPED_TRACE(c.name);
    const std::vector<TokenKind> kinds = Kinds(c.tokens);
    std::vector<Position> positions = c.positions;
    if (positions.empty()) {
      positions.resize(kinds.size());
      std::iota(positions.begin(), positions.end(), 0);
    }
    ASSERT_EQ(positions.size(), c.scores.size());
    const std::unique_ptr<Placement> placement = MakeBudget(c.budget, 2, 3, 64);
    EXPECT_THAT(Place(placement.get(), kinds, positions, c.scores), ElementsAreArray(c.evicted));
  }
}

// The docstring's rule, asked for each token, with everything sorted.
std::vector<Position> Naive(Budget budget, int sinks, int window,
                            const std::vector<TokenKind>& kinds,
                            const std::vector<Position>& positions,
                            const std::vector<float>& scores) {
  std::vector<bool> is_protected;
  int num_generated = 0;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const bool given = kinds[i] == TokenKind::kGiven;
    num_generated += given ? 0 : 1;
    is_protected.push_back(given || num_generated <= sinks || i + window >= kinds.size());
  }
  std::vector<std::pair<float, Position>> candidates;  // (score, -position)
  for (size_t i = 0; i < positions.size(); ++i) {
    if (!is_protected[positions[i]]) candidates.emplace_back(scores[i], -positions[i]);
  }
  std::sort(candidates.begin(), candidates.end());
  const size_t num_ever = std::count(is_protected.begin(), is_protected.end(), false);
  size_t num_left = positions.size();
  size_t num_unprotected = candidates.size();
  std::vector<Position> evicted;
  for (const auto& [score, negative] : candidates) {
    const bool enough = budget.unit == Budget::Unit::kRows
                            ? num_left <= budget.value
                            : num_unprotected * 100 <= budget.value * num_ever ||
                                  num_unprotected <= std::ceil(budget.value * num_ever / 100);
    if (enough) break;
    --num_left;
    --num_unprotected;
    evicted.push_back(-negative);
  }
  std::sort(evicted.begin(), evicted.end());
  return evicted;
}

TEST(BudgetPlacement, AgreesWithTheNaiveRuleOverWholeConversations) {
  std::mt19937 random(5);
  size_t num_evicted = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const int sinks = random() % 4;
    const int window = random() % 10;
    const Budget budget =
        trial % 2 == 0 ? Rows(sinks + window + 1 + random() % 30) : Percent(1 + random() % 100);
    const std::unique_ptr<Placement> placement = MakeBudget(budget, sinks, window, 1);
    std::vector<TokenKind> kinds;
    std::vector<Position> positions;
    std::vector<float> scores;
    for (int step = 0; step < 60; ++step) {
      const bool turn = step == 0 || random() % 20 == 0;
      for (int i = turn ? random() % 6 : 1; i > 0; --i) {
        positions.push_back(static_cast<Position>(kinds.size()));
        kinds.push_back(turn ? TokenKind::kGiven : TokenKind::kGenerated);
        scores.push_back(static_cast<float>(random() % 8));
      }
      const std::vector<Position> evicted = Place(placement.get(), kinds, positions, scores);
      ASSERT_THAT(evicted,
                  ElementsAreArray(Naive(budget, sinks, window, kinds, positions, scores)));
      num_evicted += evicted.size();
      for (size_t i = positions.size(); i-- > 0;) {
        if (!std::binary_search(evicted.begin(), evicted.end(), positions[i])) continue;
        positions.erase(positions.begin() + i);
        scores.erase(scores.begin() + i);
      }
    }
  }
  EXPECT_GT(num_evicted, 2000u);
}

TEST(BudgetPlacement, PercentDoesNotCompound) {
  const std::unique_ptr<Placement> placement = MakeBudget(Percent(50), 4, 128, 64);
  std::vector<TokenKind> kinds(100, TokenKind::kGiven);
  std::vector<Position> positions(100);
  std::iota(positions.begin(), positions.end(), 0);
  for (int step = 1; step <= 2048; ++step) {
    positions.push_back(static_cast<Position>(kinds.size()));
    kinds.push_back(TokenKind::kGenerated);
    if (step % 64 != 0) continue;
    const std::vector<float> scores(positions.begin(), positions.end());
    for (const Position gone : Place(placement.get(), kinds, positions, scores)) {
      positions.erase(std::find(positions.begin(), positions.end(), gone));
    }
  }
  // 2,048 - 4 - 128 = 1,916 were ever unprotected.
  EXPECT_EQ(positions.size(), 100u + 4 + 128 + 958);
}

TEST(BudgetPlacement, IsDueOnEveryIntervalOfDecodeStepsOnly) {
  struct DueCase {
    Budget budget;
    int64_t generated_tokens;
    size_t num_rows;
    StepKind kind;
    bool due;
  };
  const DueCase cases[] = {
      {Rows(10), 64, 11, StepKind::kDecode, true},
      {Rows(10), 64, 10, StepKind::kDecode, false},
      {Rows(10), 63, 11, StepKind::kDecode, false},
      {Rows(10), 128, 11, StepKind::kDecode, true},
      {Rows(10), 0, 11, StepKind::kPrefill, false},
      {Rows(10), 64, 11, StepKind::kPrefill, false},
      {Percent(50), 64, 1, StepKind::kDecode, true},
      {Percent(50), 65, 100, StepKind::kDecode, false},
      {Percent(50), 64, 100, StepKind::kPrefill, false},
  };
  for (const DueCase& c : cases) {
    const std::unique_ptr<Placement> placement = MakeBudget(c.budget, 2, 3, 64);
    EXPECT_EQ(
        placement->Due({.generated_tokens = c.generated_tokens, .step_kind = c.kind}, c.num_rows),
        c.due)
        << c.generated_tokens << " " << c.num_rows;
  }
}

TEST(BudgetPlacement, RefusesABudgetThatCannotHoldWhatIsProtected) {
  const auto placement =
      *MakeBudgetPlacement({.policy = "attention", .budget_text = "300 rows", .budget = Rows(300)});
  const std::vector<TokenKind> kinds(208, TokenKind::kGiven);
  EXPECT_EQ(placement->Check({.kinds = kinds}).ToString(),
            "invalid argument: budget of 300 rows is smaller than the 340 protected rows "
            "(prompt 208 + 4 sinks + 128 window)");
  EXPECT_TRUE(placement->Check({.kinds = std::span(kinds).first(168)}).ok());
  EXPECT_FALSE(placement->Check({.kinds = std::span(kinds).first(169)}).ok());
  EXPECT_EQ(
      MakeBudgetPlacement({.policy = "attention", .budget_text = "131 rows", .budget = Rows(131)})
          .status()
          .ToString(),
      "invalid argument: budget of 131 rows is smaller than the 132 protected rows "
      "(4 sinks + 128 window)");
}

TEST(BudgetPlacement, APercentageNeverIsTooSmall) {
  const std::unique_ptr<Placement> placement = MakeBudget(Percent(1), 4, 128, 64);
  EXPECT_TRUE(placement->Check({.kinds = Kinds("pppppppppppp")}).ok());
}

TEST(BudgetPlacement, NeedsABudget) {
  EXPECT_THAT(MakeBudgetPlacement({.policy = "random"}).status().message(),
              HasSubstr("policy \"random\" needs a budget"));
}

TEST(BudgetPlacement, NamesItsRule) {
  EXPECT_EQ(MakeBudget(Rows(1024), 4, 128, 64)->Name(),
            "budget:rows=1024,sinks=4,window=128,interval=64");
  EXPECT_EQ(MakeBudget(Percent(12.5), 0, 1, 2)->Name(),
            "budget:percent=12.5,sinks=0,window=1,interval=2");
  EXPECT_TRUE(MakeBudget(Rows(5), 0, 1, 2)->NeedsScores());
}

}  // namespace
}  // namespace ebb
