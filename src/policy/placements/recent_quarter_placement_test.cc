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
using ::testing::IsEmpty;

constexpr Budget Beyond(double n) { return {Budget::Unit::kBeyond, n}; }

PlacementOptions Options(const Budget& budget) {
  return {.policy = "raas", .budget_text = FormatBudget(budget), .budget = budget};
}

// For a scorer that gives rows a score below 0 when there is no room for them.
PlacementOptions SegmentOptions(const Budget& budget) {
  PlacementOptions options = Options(budget);
  options.negative_means_no_room = true;
  return options;
}

std::vector<TokenKind> Kinds(size_t num_given, size_t num_generated) {
  std::vector<TokenKind> kinds(num_given, TokenKind::kGiven);
  kinds.insert(kinds.end(), num_generated, TokenKind::kGenerated);
  return kinds;
}

// Every row of `scores` is at its index.
std::vector<uint32_t> PlaceRecentQuarter(Placement* placement, const std::vector<float>& scores,
                                         size_t num_given) {
  std::vector<Position> positions(scores.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<TokenKind> kinds = Kinds(num_given, scores.size() - num_given);
  std::vector<Move> moves;
  placement->Place({.positions = positions,
                    .scores = scores,
                    .kinds = kinds,
                    .next_position = static_cast<Position>(scores.size())},
                   &moves);
  std::vector<uint32_t> evicted;
  for (const Move& move : moves) evicted.push_back(move.row);
  return evicted;
}

struct RecentQuarterCase {
  const char* name;
  Budget budget;
  size_t num_given;
  std::vector<float> scores;
  std::vector<uint32_t> evicted;
};

TEST(RecentQuarterPlacement, FollowsTheTable) {
  const RecentQuarterCase cases[] = {
      {"all fit", Rows(8), 2, {0, 0, 1, 2, 3, 4, 0, 0}, {}},
      {"the lowest goes, neither the prompt nor a quarter",
       Rows(8),
       2,
       {0, 0, 2, 1, 3, 4, 5, 0, 0},
       {3}},
      {"of equal scores the lower position stays", Rows(8), 2, {0, 0, 1, 1, 1, 1, 1, 0, 0}, {6}},
      {"a budget beyond the protected", Beyond(4), 3, {0, 0, 0, 1, 2, 3, 4, 5, 0}, {3}},
      {"its quarter is of its own", Beyond(8), 1, {0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0}, {9}},
      // Half of 8 generated tokens are 4, a quarter of which is 1; of the other 7 rows 4 stay.
      {"a share of what was ever unprotected",
       Percent(50),
       2,
       {0, 0, 1, 2, 3, 4, 5, 6, 7, 0},
       {2, 3, 4}},
  };
  for (const RecentQuarterCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto placement = *MakeRecentQuarterPlacement(Options(c.budget));
    EXPECT_THAT(PlaceRecentQuarter(placement.get(), c.scores, c.num_given),
                ElementsAreArray(c.evicted));
  }
}

TEST(SegmentPlacement, FollowsTheTable) {
  const RecentQuarterCase cases[] = {
      {"the prompt is not protected", Rows(8), 2, {0, 5, 2, 1, 3, 4, 6, 0, 0}, {0}},
      {"rows without room go under the budget too", Rows(40), 2, {1, -1, 2, -2, 3, 4, 0, 0}, {}},
      {"but not from the newest", Rows(16), 2, {1, -1, 2, -2, 3, 4, -1, 0, 0, -3}, {1, 3}},
      {"and more when it is exceeded", Rows(4), 0, {1, -1, 2, 3, 4, 5, 0}, {0, 1, 2}},
      {"a share is of all tokens", Percent(50), 4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0}, {0, 1, 2, 3}},
  };
  for (const RecentQuarterCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto placement = *MakeSegmentPlacement(SegmentOptions(c.budget));
    EXPECT_THAT(PlaceRecentQuarter(placement.get(), c.scores, c.num_given),
                ElementsAreArray(c.evicted));
  }
}

TEST(SegmentPlacement, WhereScoresTellNoRoomTheBudgetAloneCounts) {
  const auto roomy = *MakeSegmentPlacement(Options(Rows(16)));
  EXPECT_THAT(PlaceRecentQuarter(roomy.get(), {1, -1, 2, -2, 3, 4, -1, 0, 0, -3}, 2), IsEmpty());
  EXPECT_FALSE(roomy->Due({.generated_tokens = 7}, 16));
  EXPECT_TRUE(roomy->Due({.generated_tokens = 7}, 17));
  const auto small = *MakeSegmentPlacement(Options(Rows(4)));
  EXPECT_THAT(PlaceRecentQuarter(small.get(), {-9, -1, -2, -3, -4, 5, 0}, 0),
              ElementsAreArray({0, 3, 4}));
  const auto prompt_stays = *MakePromptSegmentPlacement(Options(Rows(16)));
  EXPECT_THAT(PlaceRecentQuarter(prompt_stays.get(), {1, -1, 2, -2, 3, 4, -1, 0}, 2), IsEmpty());
}

TEST(SegmentPlacement, MayProtectThePromptToo) {
  const auto placement = *MakePromptSegmentPlacement(SegmentOptions(Rows(16)));
  EXPECT_EQ(placement->Name(), "prompt_segments:rows=16,window=quarter,interval=1");
  EXPECT_THAT(PlaceRecentQuarter(placement.get(), {-1, -1, 2, -2, 3, 4, -1, 0, 0, -3}, 2),
              ElementsAreArray({3}));
}

TEST(RecentQuarterPlacement, AgreesWithSortingEverything) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const size_t num_given = random() % 20;
    const size_t budget = 1 + random() % 600;
    std::vector<float> scores(num_given + random() % 700);
    for (float& score : scores) score = static_cast<float>(random() % 30);
    const size_t window = std::min<size_t>(128, budget / 4);
    std::vector<uint32_t> others;
    for (size_t i = num_given; i + window < scores.size(); ++i) others.push_back(i);
    std::stable_sort(others.begin(), others.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    std::vector<uint32_t> expected(others.begin() + std::min(others.size(), budget), others.end());
    std::sort(expected.begin(), expected.end());
    const auto placement = *MakeRecentQuarterPlacement(Options(Beyond(budget)));
    ASSERT_THAT(PlaceRecentQuarter(placement.get(), scores, num_given), ElementsAreArray(expected));
  }
}

TEST(RecentQuarterPlacement, IsDueInDecodeStepsOnTheInterval) {
  PlacementOptions options = Options(Rows(8));
  const auto each = *MakeRecentQuarterPlacement(options);
  EXPECT_TRUE(each->Due({.generated_tokens = 7}, 9));
  EXPECT_FALSE(each->Due({.generated_tokens = 7}, 8));
  EXPECT_FALSE(each->Due({.generated_tokens = 7, .step_kind = StepKind::kPrefill}, 9));
  options.interval = 4;
  const auto fourth = *MakeRecentQuarterPlacement(options);
  EXPECT_FALSE(fourth->Due({.generated_tokens = 7}, 9));
  EXPECT_TRUE(fourth->Due({.generated_tokens = 8}, 9));
  EXPECT_TRUE((*MakeSegmentPlacement(SegmentOptions(Rows(8))))->Due({.generated_tokens = 7}, 8));
}

TEST(RecentQuarterPlacement, AWindowStandsInForTheQuarter) {
  PlacementOptions options = Options(Rows(8));
  options.window = 1;
  const auto placement = *MakeRecentQuarterPlacement(options);
  EXPECT_THAT(PlaceRecentQuarter(placement.get(), {0, 0, 5, 5, 5, 5, 5, 0, 0}, 2),
              ElementsAreArray({7}));
  EXPECT_EQ(placement->Name(), "recent_quarter:rows=8,window=1,interval=1");
}

TEST(RecentQuarterPlacement, NamesItsRule) {
  EXPECT_EQ((*MakeRecentQuarterPlacement(Options(Beyond(512))))->Name(),
            "recent_quarter:beyond=512,window=quarter,interval=1");
  EXPECT_EQ((*MakeSegmentPlacement(SegmentOptions(Percent(25))))->Name(),
            "segments:percent=25,window=quarter,interval=1");
  EXPECT_EQ((*MakeSegmentPlacement(Options(Percent(25))))->Name(),
            "segments:percent=25,window=quarter,interval=1,below_0=stays");
}

TEST(RecentQuarterPlacement, RefusesWhatCannotHoldTheProtected) {
  EXPECT_EQ(MakeRecentQuarterPlacement(Options({})).status().message(),
            "policy \"raas\" needs a budget: rows (1024), percent (25%) or bytes "
            "(64MiB)");
  const std::vector<TokenKind> kinds = Kinds(50, 0);
  const auto small = *MakeRecentQuarterPlacement(Options(Rows(60)));
  EXPECT_EQ(small->Check({.kinds = kinds}).message(),
            "budget of 60 rows is smaller than the 65 protected rows (prompt 50 + 15 window)");
  EXPECT_TRUE((*MakeRecentQuarterPlacement(Options(Rows(70))))->Check({.kinds = kinds}).ok());
  EXPECT_TRUE((*MakeRecentQuarterPlacement(Options(Beyond(1))))->Check({.kinds = kinds}).ok());
  EXPECT_TRUE((*MakeSegmentPlacement(Options(Rows(20))))->Check({.kinds = kinds}).ok());
  PlacementOptions options = Options(Rows(60));
  options.window = 61;
  EXPECT_FALSE(MakeRecentQuarterPlacement(options).ok());
}

}  // namespace
}  // namespace ebb
