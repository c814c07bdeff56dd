// Every part of a built-in policy can rest in a file, and comes back as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "tests/support/policy/policy_harness.h"

namespace ebb {
namespace {

const PolicyContext kStateContext = {
    .shape = {.num_layers = 3, .num_q_heads = 4, .num_kv_heads = 2, .head_dim = 16, .embed_dim = 8},
    .row_bytes = 64,
    .max_tokens = 512,
    .foresight = &SomeForesight(),
    .eviction_window = 16};

Policy MakeScored(const std::string& name, const std::string& scorer, Granularity granularity) {
  PolicySpec spec = {.name = name, .scorer = scorer, .granularity = granularity, .seed = 5};
  if (name != "full") spec.budget = *ParseBudget("30%");
  auto policy = MakePolicy(*DropUnusedOptions(spec), kStateContext);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// Scorers that live through the same steps, in which rows come and go.
class Lives {
 public:
  explicit Lives(const Policy& policy)
      : num_groups_(kStateContext.shape.NumGroups(policy.granularity)),
        signals_(kStateContext.shape, policy.granularity, policy.scorer->Needs(), 7,
                 MadeUpSignals::Fault::kNone),
        positions_(num_groups_) {}

  void Step(StepKind kind, int num_tokens, const std::vector<Scorer*>& scorers) {
    std::vector<Position> appended(num_tokens);
    std::iota(appended.begin(), appended.end(), next_);
    const StepSignals& step = signals_.Step(kind, next_, num_tokens);
    next_ += num_tokens;
    std::vector<GroupSignals> shown;
    for (int group = 0; group < num_groups_; ++group) {
      std::vector<Position>& positions = positions_[group];
      positions.insert(positions.end(), appended.begin(), appended.end());
      for (Scorer* scorer : scorers) scorer->Append(group, appended);
      shown.push_back(signals_.Group(group, positions));
    }
    for (Scorer* scorer : scorers) {
      if (!scorer->Needs().Empty()) scorer->Observe(shown, step);
    }
    for (int group = 0; group < num_groups_; ++group) LoseRows(group, scorers);
  }

  [[nodiscard]] int num_groups() const { return num_groups_; }

 private:
  void LoseRows(int group, const std::vector<Scorer*>& scorers) {
    std::vector<uint32_t> kept;
    std::vector<Position> left;
    for (uint32_t row = 0; row < positions_[group].size(); ++row) {
      if ((row + next_) % (19 + group) == 1) continue;
      kept.push_back(row);
      left.push_back(positions_[group][row]);
    }
    positions_[group] = left;
    for (Scorer* scorer : scorers) {
      // Scores that are computed on demand belong to the step.
      (void)scorer->Scores(group);
      scorer->Retain(group, kept);
    }
  }

  const int num_groups_;
  MadeUpSignals signals_;
  std::vector<std::vector<Position>> positions_;  // [num_groups][num_rows]
  Position next_ = 0;
};

void ExpectSameScores(int num_groups, Scorer* a, Scorer* b) {
  for (int group = 0; group < num_groups; ++group) {
    EXPECT_TRUE(std::ranges::equal(a->Scores(group), b->Scores(group))) << a->Name() << group;
  }
}

TEST(PolicyState, EveryScorerComesBackAndGoesOnTheSame) {
  for (const ScorerInfo& info : BuiltinScorers()) {
    for (const Granularity granularity :
         {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
      const Policy saved = MakeScored("attention", std::string(info.name), granularity);
      const Policy loaded = MakeScored("attention", std::string(info.name), granularity);
      Lives lives(saved);
      lives.Step(StepKind::kPrefill, 20, {saved.scorer.get()});
      saved.scorer->EndFirstPrefill();
      for (int i = 0; i < 150; ++i) lives.Step(StepKind::kDecode, 1, {saved.scorer.get()});
      StateWriter to;
      ASSERT_TRUE(saved.scorer->SaveState(&to).ok()) << info.name;
      StateReader from(to.bytes(), "the scorer");
      ASSERT_TRUE(loaded.scorer->LoadState(&from).ok()) << info.name;
      EXPECT_TRUE(from.End().ok());
      ExpectSameScores(lives.num_groups(), saved.scorer.get(), loaded.scorer.get());
      for (int i = 0; i < 150; ++i) {
        lives.Step(StepKind::kDecode, 1, {saved.scorer.get(), loaded.scorer.get()});
      }
      ExpectSameScores(lives.num_groups(), saved.scorer.get(), loaded.scorer.get());
    }
  }
}

enum class Sees { kNothing, kSignals };

// Returns the state of a scorer after a prompt's rows, read in these steps, whose signals it saw or
// did not.
std::vector<std::byte> StateBehindPrompt(const std::string& name, Granularity granularity,
                                         const std::vector<int>& steps, Sees sees) {
  const Policy policy = MakeScored("attention", name, granularity);
  Scorer& scorer = *policy.scorer;
  MadeUpSignals signals(kStateContext.shape, granularity, scorer.Needs(), 7,
                        MadeUpSignals::Fault::kNone);
  std::vector<Position> positions;
  for (const int num_tokens : steps) {
    const auto first = static_cast<Position>(positions.size());
    positions.resize(first + num_tokens);
    std::iota(positions.begin(), positions.end(), 0);
    const StepSignals& step = signals.Step(StepKind::kPrefill, first, num_tokens);
    std::vector<GroupSignals> shown;
    for (int group = 0; group < kStateContext.shape.NumGroups(granularity); ++group) {
      scorer.Append(group, std::span(positions).subspan(first));
      shown.push_back(signals.Group(group, positions));
    }
    if (sees == Sees::kSignals && !scorer.Needs().Empty()) scorer.Observe(shown, step);
  }
  StateWriter to;
  EXPECT_TRUE(scorer.SaveState(&to).ok());
  return {to.bytes().begin(), to.bytes().end()};
}

TEST(PolicyState, InAScorerThatIgnoresPromptsTheyLeaveTheirRowsAlone) {
  int num_ignoring = 0;
  for (const ScorerInfo& info : BuiltinScorers()) {
    const std::string name(info.name);
    for (const Granularity granularity :
         {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
      if (!MakeScored("attention", name, granularity).scorer->IgnoresPrompts()) continue;
      ++num_ignoring;
      EXPECT_EQ(StateBehindPrompt(name, granularity, {40, 1, 9}, Sees::kSignals),
                StateBehindPrompt(name, granularity, {50}, Sees::kNothing))
          << name;
    }
  }
  EXPECT_GE(num_ignoring, 3 * 8);
}

TEST(PolicyState, AScorerThatIsCutShortIsRefused) {
  for (const ScorerInfo& info : BuiltinScorers()) {
    const Policy saved = MakeScored("attention", std::string(info.name), Granularity::kLayer);
    Lives lives(saved);
    for (int i = 0; i < 5; ++i) lives.Step(StepKind::kDecode, 1, {saved.scorer.get()});
    StateWriter to;
    ASSERT_TRUE(saved.scorer->SaveState(&to).ok()) << info.name;
    const std::span<const std::byte> all = to.bytes();
    for (size_t size = 0; size < all.size(); size += 1 + all.size() / 97) {
      const Policy loaded = MakeScored("attention", std::string(info.name), Granularity::kLayer);
      StateReader from(all.first(size), "the scorer");
      EXPECT_EQ(loaded.scorer->LoadState(&from).code(), StatusCode::kCorrupt)
          << info.name << " " << size;
    }
  }
}

// A life of a number of tokens, and what was saved of it.
StateWriter SavedAfter(const Policy& policy, int num_tokens) {
  Lives lives(policy);
  for (int i = 0; i < num_tokens; ++i) lives.Step(StepKind::kDecode, 1, {policy.scorer.get()});
  StateWriter to;
  EXPECT_TRUE(policy.scorer->SaveState(&to).ok());
  return to;
}

// Returns the offsets at which a list may begin: the number there does not exceed the remaining
// bytes.
std::vector<size_t> ListBegins(const StateWriter& state) {
  std::vector<size_t> begins;
  for (size_t at = 8; at + 8 <= state.bytes().size(); at += 4) {
    uint64_t length = 0;
    std::memcpy(&length, state.bytes().data() + at, sizeof(length));
    if (length > 0 && length < state.bytes().size()) begins.push_back(at);
  }
  return begins;
}

// The beginning of one state before the end of another one, with more rows: whether the parts fit
// together cannot be checked, but the result must have valid scores.
TEST(PolicyState, PartsOfDifferentStatesAreRefusedOrGoOnSafely) {
  for (const ScorerInfo& info : BuiltinScorers()) {
    const std::string name(info.name);
    const auto make = [&] { return MakeScored("attention", name, Granularity::kToken); };
    const StateWriter few = SavedAfter(make(), 3), more = SavedAfter(make(), 5);
    for (const size_t cut : ListBegins(few)) {
      for (const size_t from : ListBegins(more)) {
        std::string bytes = few.text().substr(0, cut) + more.text().substr(from);
        const Policy loaded = make();
        StateReader reader(std::as_bytes(std::span(bytes)), "the scorer");
        if (!loaded.scorer->LoadState(&reader).ok() || !reader.End().ok()) continue;
        const size_t num_rows = loaded.scorer->Scores(0).size();
        if (num_rows == 0) continue;
        std::vector<uint32_t> kept(num_rows - 1);
        std::iota(kept.begin(), kept.end(), 1);
        loaded.scorer->Retain(0, kept);
        EXPECT_EQ(loaded.scorer->Scores(0).size(), num_rows - 1) << name;
      }
    }
  }
}

TEST(PolicyState, StepsOfSegmentsThatDoNotExistAreRefused) {
  const auto make = [] { return MakeScored("attention", "thinkv_original", Granularity::kToken); };
  const StateWriter saved = SavedAfter(make(), 140);
  // The last list: a byte for each closed segment, of which a transition lowered the first.
  std::string bytes = saved.text();
  bytes.back() = 5;
  StateReader five(std::as_bytes(std::span(bytes)), "the scorer");
  EXPECT_TRUE(make().scorer->LoadState(&five).ok());
  bytes.back() = 6;
  StateReader six(std::as_bytes(std::span(bytes)), "the scorer");
  EXPECT_EQ(make().scorer->LoadState(&six).code(), StatusCode::kCorrupt);
}

TEST(PolicyState, PagesOfNoSizeAreRefused) {
  const Policy saved = MakeScored("quest", "", Granularity::kToken);
  const std::vector<Position> positions = {0, 1, 2};
  saved.selector->Append(0, positions);
  EXPECT_EQ(saved.selector->NumRows(0), 3u);
  StateWriter to;
  ASSERT_TRUE(saved.selector->SaveState(&to).ok());
  for (const uint32_t rows : {0u, 3u, 16u, 17u}) {
    std::string bytes = to.text();
    std::memcpy(bytes.data() + 8, &rows, sizeof(rows));  // behind the number of pages
    const Policy loaded = MakeScored("quest", "", Granularity::kToken);
    StateReader from(std::as_bytes(std::span(bytes)), "the selector");
    EXPECT_EQ(loaded.selector->LoadState(&from).ok(), rows >= 1 && rows <= 16) << rows;
  }
}

TEST(PolicyState, EveryPlacementCanBeSaved) {
  const auto expect_saved = [](const Policy& policy) {
    if (policy.placement == nullptr) return;
    StateWriter to;
    EXPECT_TRUE(policy.placement->SaveState(&to).ok()) << policy.name;
    StateReader from(to.bytes(), "the placement");
    EXPECT_TRUE(policy.placement->LoadState(&from).ok()) << policy.name;
    EXPECT_TRUE(from.End().ok()) << policy.name;
  };
  for (const PolicyInfo& info : BuiltinPolicies()) {
    expect_saved(MakeScored(std::string(info.name), "", info.granularity));
  }
  PolicySpec tiered;
  tiered.tiers = TierShares();
  expect_saved(*MakePolicy(tiered, kStateContext));
}

TEST(PolicyState, ScoresOfAnotherNumberOfGroupsAreRefused) {
  const Policy saved = MakeScored("attention", "", Granularity::kLayer);
  const Policy other = MakeScored("attention", "", Granularity::kHead);
  StateWriter to;
  ASSERT_TRUE(saved.scorer->SaveState(&to).ok());
  StateReader from(to.bytes(), "the scorer");
  EXPECT_EQ(other.scorer->LoadState(&from).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ebb
