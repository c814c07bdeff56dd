// Every part of a built-in policy can rest in a file, and comes back as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "tests/support/policy_harness.h"

namespace ebb {
namespace {

const PolicyContext kContext = {
    .shape = {.num_layers = 3, .num_q_heads = 4, .num_kv_heads = 2, .head_dim = 16, .embed_dim = 8},
    .row_bytes = 64,
    .max_tokens = 512,
    .foresight = &SomeForesight(),
    .eviction_window = 16};

Policy Make(const std::string& name, const std::string& scorer, Granularity granularity) {
  PolicySpec spec = {.name = name, .scorer = scorer, .granularity = granularity, .seed = 5};
  if (name != "full") spec.budget = *ParseBudget("30%");
  auto policy = MakePolicy(*OnlyWhatItTakes(spec), kContext);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// Scorers that live through the same steps, in which rows come and go.
class Lives {
 public:
  explicit Lives(const Policy& policy)
      : num_groups_(kContext.shape.NumGroups(policy.granularity)),
        signals_(kContext.shape, policy.granularity, policy.scorer->Needs(), 7,
                 MadeUpSignals::Fault::kNone),
        positions_(num_groups_) {}

  void Step(StepKind kind, int num_tokens, const std::vector<Scorer*>& scorers) {
    std::vector<Position> appended(num_tokens);
    std::iota(appended.begin(), appended.end(), next_);
    const StepSignals& step = signals_.Step(kind, next_, num_tokens);
    next_ += num_tokens;
    for (int group = 0; group < num_groups_; ++group) {
      std::vector<Position>& positions = positions_[group];
      positions.insert(positions.end(), appended.begin(), appended.end());
      const GroupSignals of_group = signals_.Group(group, positions);
      std::vector<uint32_t> kept;
      std::vector<Position> left;
      for (uint32_t row = 0; row < positions.size(); ++row) {
        if ((row + next_) % (19 + group) == 1) continue;
        kept.push_back(row);
        left.push_back(positions[row]);
      }
      positions = left;
      for (Scorer* scorer : scorers) {
        scorer->Append(group, appended);
        if (!scorer->Needs().Empty()) scorer->Observe(group, of_group, step);
        // What is worked out when scores are asked for belongs to the step.
        (void)scorer->Scores(group);
        scorer->Retain(group, kept);
      }
    }
  }

  [[nodiscard]] int num_groups() const { return num_groups_; }

 private:
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
      const Policy saved = Make("attention", std::string(info.name), granularity);
      const Policy loaded = Make("attention", std::string(info.name), granularity);
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

TEST(PolicyState, AScorerThatIsCutShortIsRefused) {
  for (const ScorerInfo& info : BuiltinScorers()) {
    const Policy saved = Make("attention", std::string(info.name), Granularity::kLayer);
    Lives lives(saved);
    for (int i = 0; i < 5; ++i) lives.Step(StepKind::kDecode, 1, {saved.scorer.get()});
    StateWriter to;
    ASSERT_TRUE(saved.scorer->SaveState(&to).ok()) << info.name;
    const std::span<const std::byte> all = to.bytes();
    for (size_t size = 0; size < all.size(); size += 1 + all.size() / 97) {
      const Policy loaded = Make("attention", std::string(info.name), Granularity::kLayer);
      StateReader from(all.first(size), "the scorer");
      EXPECT_EQ(loaded.scorer->LoadState(&from).code(), StatusCode::kCorrupt)
          << info.name << " " << size;
    }
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
    expect_saved(Make(std::string(info.name), "", info.granularity));
  }
  PolicySpec tiered;
  tiered.tiers = TierSpec{};
  expect_saved(*MakePolicy(tiered, kContext));
}

TEST(PolicyState, ScoresOfAnotherNumberOfGroupsAreRefused) {
  const Policy saved = Make("attention", "", Granularity::kLayer);
  const Policy other = Make("attention", "", Granularity::kHead);
  StateWriter to;
  ASSERT_TRUE(saved.scorer->SaveState(&to).ok());
  StateReader from(to.bytes(), "the scorer");
  EXPECT_EQ(other.scorer->LoadState(&from).code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace ebb
