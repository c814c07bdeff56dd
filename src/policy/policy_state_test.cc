// Every part of a built-in policy can rest in a file, and comes back as it was.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"

namespace ebb {
namespace {

const PolicyContext kContext = {
    .shape = {.num_layers = 3, .num_q_heads = 4, .num_kv_heads = 2, .head_dim = 16},
    .row_bytes = 64,
    .max_tokens = 512};

Policy Make(const std::string& name, const std::string& scorer, Granularity granularity) {
  PolicySpec spec = {.name = name, .scorer = scorer, .granularity = granularity, .seed = 5};
  if (name != "full") spec.budget = *ParseBudget("30%");
  auto policy = MakePolicy(spec, kContext);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// Rows of different masses, some of which went.
void Live(Scorer* scorer, int num_groups, Position first) {
  std::vector<Position> positions(20);
  std::iota(positions.begin(), positions.end(), first);
  for (int group = 0; group < num_groups; ++group) {
    scorer->Append(group, positions);
    const size_t rows = scorer->Scores(group).size();
    std::vector<float> mass(rows);
    for (size_t i = 0; i < rows; ++i) mass[i] = static_cast<float>((i * 7 + group) % 11);
    scorer->Observe(group,
                    {.mass = mass,
                     .num_mass_heads = 1,
                     .num_rows = static_cast<int>(rows),
                     .num_new_rows = 20,
                     .num_layers_counted = 1},
                    {.kind = StepKind::kDecode, .first_position = first, .num_tokens = 20});
    std::vector<uint32_t> kept;
    for (uint32_t row = 0; row < rows; ++row) {
      if (row % (3 + group) != 1) kept.push_back(row);
    }
    scorer->Retain(group, kept);
  }
}

TEST(PolicyState, EveryScorerComesBackAndGoesOnTheSame) {
  for (const ScorerInfo& info : BuiltinScorers()) {
    for (const Granularity granularity :
         {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
      const int num_groups = kContext.shape.NumGroups(granularity);
      const Policy saved = Make("attention", std::string(info.name), granularity);
      const Policy loaded = Make("attention", std::string(info.name), granularity);
      Live(saved.scorer.get(), num_groups, 0);
      StateWriter to;
      ASSERT_TRUE(saved.scorer->SaveState(&to).ok()) << info.name;
      StateReader from(to.bytes(), "the scorer");
      ASSERT_TRUE(loaded.scorer->LoadState(&from).ok()) << info.name;
      EXPECT_TRUE(from.End().ok());
      for (const Position next : {20, 40}) {
        for (int group = 0; group < num_groups; ++group) {
          EXPECT_TRUE(std::ranges::equal(saved.scorer->Scores(group), loaded.scorer->Scores(group)))
              << info.name << group;
        }
        Live(saved.scorer.get(), num_groups, next);
        Live(loaded.scorer.get(), num_groups, next);
      }
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
