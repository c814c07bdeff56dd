// Layers may have different numbers of kv heads: a group's scores then follow from its own heads
// alone, wherever they stand among those of all layers.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/policy/policy_harness.h"

namespace ebb {
namespace {

const std::vector<int> kKvHeads = {2, 4, 1};

ModelShape Mixed() {
  return {.num_layers = 3,
          .num_q_heads = 4,
          .num_kv_heads = 4,
          .head_dim = 16,
          .embed_dim = 8,
          .kv_heads_by_layer = kKvHeads};
}

ModelShape Alike(int num_kv_heads) {
  ModelShape shape = Mixed();
  shape.num_kv_heads = num_kv_heads;
  shape.kv_heads_by_layer = {};
  return shape;
}

Policy MakeFor(const std::string& scorer, const ModelShape& shape, Granularity granularity) {
  const PolicySpec spec = {.name = "attention",
                           .scorer = scorer,
                           .budget = *ParseBudget("30%"),
                           .granularity = granularity,
                           .seed = 5};
  auto policy = MakePolicy(spec, {.shape = shape,
                                  .row_bytes = 64,
                                  .max_tokens = 512,
                                  .foresight = &SomeForesight(),
                                  .eviction_window = 16});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return *std::move(policy);
}

// By group, after the same steps. A layer's signals depend on its own shape alone.
std::vector<std::vector<float>> ScoresOf(const std::string& name, const ModelShape& shape,
                                         Granularity granularity) {
  const Policy policy = MakeFor(name, shape, granularity);
  Scorer& scorer = *policy.scorer;
  MadeUpSignals signals(shape, granularity, scorer.Needs(), 7, MadeUpSignals::Fault::kNone);
  const int num_groups = shape.NumGroups(granularity);
  std::vector<Position> positions;
  const auto step = [&](StepKind kind, int num_tokens) {
    const auto first = static_cast<Position>(positions.size());
    std::vector<Position> appended(num_tokens);
    std::iota(appended.begin(), appended.end(), first);
    positions.insert(positions.end(), appended.begin(), appended.end());
    const StepSignals& of_step = signals.Step(kind, first, num_tokens);
    std::vector<GroupSignals> shown;
    for (int group = 0; group < num_groups; ++group) {
      scorer.Append(group, appended);
      shown.push_back(signals.Group(group, positions));
    }
    if (!scorer.Needs().Empty()) scorer.Observe(shown, of_step);
    for (int group = 0; group < num_groups; ++group) (void)scorer.Scores(group);
  };
  step(StepKind::kPrefill, 30);
  scorer.EndFirstPrefill();
  for (int i = 0; i < 150; ++i) step(StepKind::kDecode, 1);
  std::vector<std::vector<float>> scores;
  for (int group = 0; group < num_groups; ++group) {
    const auto of_group = scorer.Scores(group);
    scores.emplace_back(of_group.begin(), of_group.end());
  }
  return scores;
}

std::vector<std::string> ScorerNames() {
  std::vector<std::string> names;
  for (const ScorerInfo& info : BuiltinScorers()) names.emplace_back(info.name);
  return names;
}

class MixedHeads : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Builtin, MixedHeads, testing::ValuesIn(ScorerNames()),
                         [](const auto& info) { return info.param; });

TEST_P(MixedHeads, ALayersScoresAreThoseThatItHasAmongLayersLikeIt) {
  // It looks at the keys of the layer in the middle, which here would be another one.
  const bool sees_one_layer = GetParam() == "thinkv_original";
  for (int layer = 0; layer < 3; ++layer) {
    if (sees_one_layer && layer != 1) continue;
    const auto mixed = ScoresOf(GetParam(), Mixed(), Granularity::kLayer);
    const auto alike = ScoresOf(GetParam(), Alike(kKvHeads[layer]), Granularity::kLayer);
    EXPECT_EQ(mixed[layer], alike[layer]) << "layer " << layer;
  }
}

TEST_P(MixedHeads, AHeadsScoresAreThoseThatItHasAmongLayersLikeItsOwn) {
  // Some draw by the number of the group, which is another one then.
  if (GetParam() == "random" || GetParam() == "oracle") return;
  const bool sees_one_layer = GetParam() == "thinkv_original";
  const auto mixed = ScoresOf(GetParam(), Mixed(), Granularity::kHead);
  ASSERT_EQ(mixed.size(), 7u);
  for (int layer = 0, stream = 0; layer < 3; ++layer) {
    const auto alike = ScoresOf(GetParam(), Alike(kKvHeads[layer]), Granularity::kHead);
    for (int head = 0; head < kKvHeads[layer]; ++head, ++stream) {
      if (sees_one_layer && layer != 1) continue;
      EXPECT_EQ(mixed[stream], alike[layer * kKvHeads[layer] + head])
          << "layer " << layer << ", head " << head;
    }
  }
}

TEST_P(MixedHeads, ASavedScorerHasTheScoresThatItHad) {
  for (const Granularity granularity :
       {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
    const Policy saved = MakeFor(GetParam(), Mixed(), granularity);
    const Policy loaded = MakeFor(GetParam(), Mixed(), granularity);
    MadeUpSignals signals(Mixed(), granularity, saved.scorer->Needs(), 7,
                          MadeUpSignals::Fault::kNone);
    std::vector<Position> positions(40);
    std::iota(positions.begin(), positions.end(), 0);
    const StepSignals& step = signals.Step(StepKind::kPrefill, 0, 40);
    const int num_groups = Mixed().NumGroups(granularity);
    std::vector<GroupSignals> shown;
    for (int group = 0; group < num_groups; ++group) {
      saved.scorer->Append(group, positions);
      shown.push_back(signals.Group(group, positions));
    }
    if (!saved.scorer->Needs().Empty()) saved.scorer->Observe(shown, step);
    for (int group = 0; group < num_groups; ++group) (void)saved.scorer->Scores(group);
    StateWriter to;
    const Status status = saved.scorer->SaveState(&to);
    ASSERT_TRUE(status.ok()) << status.ToString();
    StateReader from(to.bytes(), "the scorer");
    ASSERT_TRUE(loaded.scorer->LoadState(&from).ok()) << from.status().ToString();
    for (int group = 0; group < num_groups; ++group) {
      EXPECT_TRUE(std::ranges::equal(saved.scorer->Scores(group), loaded.scorer->Scores(group)));
    }
  }
}

}  // namespace
}  // namespace ebb
