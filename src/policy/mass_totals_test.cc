#include "src/policy/mass_totals.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "gtest/gtest.h"
#include "tests/support/policy/policy_harness.h"

namespace ebb {
namespace {

const ModelShape kTotalsShape = HarnessOptions().shape;

Policy MakeWith(std::string_view scorer, Granularity granularity) {
  const PolicySpec spec = {.name = "attention",
                           .scorer = std::string(scorer),
                           .budget = {Budget::Unit::kPercent, 50},
                           .granularity = granularity};
  auto policy = MakePolicy(spec, {.shape = kTotalsShape,
                                  .row_bytes = 64,
                                  .max_tokens = 512,
                                  .foresight = &SomeForesight(),
                                  .eviction_window = 16});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

std::vector<std::string> ScorersThatTakeTotals() {
  std::vector<std::string> names;
  for (const ScorerInfo& info : BuiltinScorers()) {
    if (MakeWith(info.name, Granularity::kToken).scorer->Total() != MassTotal::kNone) {
      names.emplace_back(info.name);
    }
  }
  return names;
}

TEST(MassTotals, AreWhatCumulativeAttentionTakes) {
  EXPECT_EQ(ScorersThatTakeTotals(), std::vector<std::string>{"attention"});
}

// One scorer sees every step, another is given the totals; in between rows come and go.
struct TotalsCase {
  Granularity granularity;
  MadeUpSignals::Fault fault;
  bool by_head;  // another reader asked for mass by query head
};

class MassTotalsOf : public testing::TestWithParam<TotalsCase> {};

TEST_P(MassTotalsOf, GiveTheBitsThatSeeingEveryStepDoes) {
  const Policy seeing = MakeWith("attention", GetParam().granularity);
  const Policy given = MakeWith("attention", GetParam().granularity);
  SignalNeeds needs = seeing.scorer->Needs();
  needs.mass_in_prefill = true;  // which counts for nothing here
  if (GetParam().by_head) needs.mass = MassNeed::kPerQueryHead;
  MadeUpSignals signals(kTotalsShape, GetParam().granularity, needs, 5, GetParam().fault);
  const AttentionLayout layout(kTotalsShape, GetParam().granularity);
  MassTotals totals(layout);
  std::vector<std::vector<Position>> rows(layout.num_groups());
  Position next = 0;
  const auto step = [&](StepKind kind, int num_tokens) {
    std::vector<Position> appended(num_tokens);
    std::iota(appended.begin(), appended.end(), next);
    const StepSignals& of_step = signals.Step(kind, next, num_tokens);
    next += num_tokens;
    std::vector<GroupSignals> shown;
    for (int group = 0; group < layout.num_groups(); ++group) {
      rows[group].insert(rows[group].end(), appended.begin(), appended.end());
      for (const Policy* policy : {&seeing, &given}) policy->scorer->Append(group, appended);
      totals.Append(group, appended.size());
      shown.push_back(signals.Group(group, rows[group]));
      totals.Add(group, shown.back(), of_step);
    }
    seeing.scorer->Observe(shown, of_step);
  };
  const auto lose_rows = [&] {
    for (int group = 0; group < layout.num_groups(); ++group) {
      std::vector<uint32_t> kept;
      std::vector<Position> left;
      for (uint32_t row = 0; row < rows[group].size(); ++row) {
        if (row % 5 == 2) continue;
        kept.push_back(row);
        left.push_back(rows[group][row]);
      }
      rows[group] = left;
      for (const Policy* policy : {&seeing, &given}) policy->scorer->Retain(group, kept);
      totals.Retain(group, kept);
    }
  };
  const auto expect_equal = [&] {
    for (int group = 0; group < layout.num_groups(); ++group) {
      given.scorer->TakeTotal(group, totals[group]);
      const std::span<const float> a = seeing.scorer->Scores(group);
      EXPECT_EQ(a.size(), rows[group].size());
      EXPECT_TRUE(std::ranges::equal(a, given.scorer->Scores(group))) << group;
    }
  };
  step(StepKind::kDecode, 1);  // before the first prefill: forgotten at its end
  step(StepKind::kPrefill, 20);
  for (const Policy* policy : {&seeing, &given}) policy->scorer->EndFirstPrefill();
  totals.EndFirstPrefill();
  expect_equal();
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 7; ++i) step(StepKind::kDecode, 1);
    step(StepKind::kPrefill, 3);  // a later turn
    expect_equal();
    lose_rows();
    expect_equal();
  }
  const std::span<const float> scores = seeing.scorer->Scores(0);
  EXPECT_GT(*std::ranges::max_element(scores), 0);
}

using enum Granularity;
INSTANTIATE_TEST_SUITE_P(All, MassTotalsOf,
                         testing::Values(TotalsCase{kToken, MadeUpSignals::Fault::kNone, false},
                                         TotalsCase{kLayer, MadeUpSignals::Fault::kNone, true},
                                         TotalsCase{kHead, MadeUpSignals::Fault::kNanMass, false},
                                         TotalsCase{kToken, MadeUpSignals::Fault::kNanLayers,
                                                    false}));

TEST(MassTotals, GoOnFromWhatAResumedScorerHas) {
  MassTotals totals(AttentionLayout(kTotalsShape, Granularity::kToken));
  totals.Resume(0, std::vector<float>{2, 3});
  totals.Append(0, 1);
  const std::vector<float> mass = {12, 0, 24};
  totals.Add(0, {.mass = mass, .num_mass_heads = 1, .num_rows = 3, .num_layers_counted = 3},
             {.kind = StepKind::kDecode});
  EXPECT_EQ(std::vector<float>(totals[0].begin(), totals[0].end()), (std::vector<float>{3, 3, 2}));
}

}  // namespace
}  // namespace ebb
