#include <algorithm>
#include <vector>

#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

const ModelShape kShape = {
    .num_layers = 2, .num_q_heads = 1, .num_kv_heads = 1, .head_dim = 4, .embed_dim = 4};
constexpr int kTau = 4;
constexpr int kSegments = 9;

// The scores after some segments, each with attention of a spread of its own. Both layers see the
// same, but for one that is left out for a NaN during a segment.
std::vector<float> ScoresWithout(const char* policy_name, int left_out_segment) {
  PolicySpec spec = {.name = policy_name,
                     .params = {{"tau", "4"}},
                     .budget = {Budget::Unit::kPercent, 50},
                     .granularity = Granularity::kToken};
  if (spec.name == "thinkv") {
    spec.params.insert({{"reasoning", "3"}, {"execution", "2"}, {"transition", "1"}});
  }
  auto policy = MakePolicy(spec, {.shape = kShape, .max_tokens = 512});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  Scorer& scorer = *policy->scorer;
  for (int token = 0; token < kSegments * kTau; ++token) {
    const int segment = token / kTau;
    const bool one_layer = segment == left_out_segment;
    const Position position = token;
    scorer.Append(0, {&position, 1});
    const auto rows = static_cast<size_t>(token) + 1;
    // The first so many rows share what there is.
    const size_t reached = std::min<size_t>(rows, 1 + segment % 3 * 3);
    std::vector<float> mass(2 * rows, 0.0f);
    for (size_t row = 0; row < reached; ++row) {
      mass[row] = 1.0f / static_cast<float>(reached);
      if (!one_layer) mass[rows + row] = mass[row];
    }
    const std::vector<float> key = {1, 2, 3, static_cast<float>(token % 5)};
    scorer.Observe(0,
                   {.mass = mass,
                    .num_mass_heads = 2,
                    .num_rows = token + 1,
                    .num_new_rows = 1,
                    .num_layers_counted = one_layer ? 1 : 2},
                   {.first_position = position, .num_tokens = 1, .keys = {key, key}});
  }
  const auto scores = scorer.Scores(0);
  return {scores.begin(), scores.end()};
}

TEST(SegmentScorer, ALayerThatIsLeftOutChangesNoSegment) {
  for (const char* policy : {"thinkv", "thinkv_original"}) {
    const std::vector<float> all = ScoresWithout(policy, -1);
    for (int segment = 0; segment < kSegments; ++segment) {
      EXPECT_THAT(ScoresWithout(policy, segment),
                  testing::Pointwise(testing::FloatNear(1e-5f), all))
          << policy << " " << segment;
    }
  }
}

}  // namespace
}  // namespace ebb
