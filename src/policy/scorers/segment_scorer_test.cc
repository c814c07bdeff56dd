#include <algorithm>
#include <numeric>
#include <random>
#include <string>
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
// same, but for one that is left out for a NaN during a segment, and so do all heads of a layer.
std::vector<float> ScoresWithout(const char* policy_name, int left_out_segment, int heads = 1) {
  PolicySpec spec = {.name = policy_name,
                     .params = {{"tau", "4"}},
                     .budget = {Budget::Unit::kPercent, 50},
                     .granularity = Granularity::kToken};
  if (spec.name == "thinkv") {
    spec.params.insert({{"reasoning", "3"}, {"execution", "2"}, {"transition", "1"}});
  }
  ModelShape shape = kShape;
  shape.num_q_heads = heads;
  auto policy = MakePolicy(spec, {.shape = shape, .max_tokens = 512});
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
    std::vector<float> mass(2 * heads * rows, 0.0f);
    for (int head = 0; head < (one_layer ? heads : 2 * heads); ++head) {
      std::fill_n(mass.begin() + head * rows, reached, 1.0f / static_cast<float>(reached));
    }
    const std::vector<float> key = {1, 2, 3, static_cast<float>(token % 5)};
    scorer.ObserveGroup(0,
                        {.mass = mass,
                         .num_mass_heads = 2 * heads,
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

TEST(SegmentScorer, ManyHeadsThatSeeTheSameAreAsOne) {
  for (const char* policy : {"thinkv", "thinkv_original"}) {
    const std::vector<float> one = ScoresWithout(policy, 2);
    EXPECT_THAT(ScoresWithout(policy, 2, 25), testing::Pointwise(testing::FloatNear(1e-5f), one))
        << policy;
  }
}

constexpr ModelShape kWideShape = {
    .num_layers = 12, .num_q_heads = 3, .num_kv_heads = 1, .head_dim = 4, .embed_dim = 4};

struct WideThought {
  std::vector<float> scores;
  std::vector<double> attention;  // cumulative, mean over layers and heads
};

// 40 tokens that follow a prompt of 2,000, with attention that differs by head.
WideThought ThinkWide(const std::string& policy_name, const RunParts& run_parts) {
  constexpr int kPrompt = 2000, kTokens = 40, kHeads = 36;
  const PolicySpec spec = {.name = policy_name,
                           .params = {{"tau", "4"}},
                           .budget = {Budget::Unit::kPercent, 50},
                           .granularity = Granularity::kToken};
  auto policy = MakePolicy(spec, {.shape = kWideShape, .max_tokens = 4096, .run_parts = run_parts});
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  Scorer& scorer = *policy->scorer;
  std::vector<Position> prompt(kPrompt);
  std::iota(prompt.begin(), prompt.end(), 0);
  scorer.Append(0, prompt);
  const std::vector<float> key(4 * kPrompt, 1.0f);
  const std::vector<std::span<const float>> keys(kWideShape.num_layers, key);
  std::mt19937 random(1);
  std::vector<float> output(key.size());  // of a block
  const auto change = [&] {
    for (float& x : output) x = static_cast<float>(random() % 100);
  };
  change();
  const std::vector<int> layers = scorer.Needs().hidden_layers;
  const std::vector<std::span<const float>> hidden(layers.size(), output);
  scorer.ObserveGroup(0, {.num_rows = kPrompt, .num_new_rows = kPrompt},
                      {.kind = StepKind::kPrefill,
                       .num_tokens = kPrompt,
                       .keys = keys,
                       .hidden_layers = layers,
                       .hidden = hidden});
  std::vector<double> attention(kPrompt + kTokens);
  for (Position position = kPrompt; position < kPrompt + kTokens; ++position) {
    scorer.Append(0, {&position, 1});
    const auto rows = static_cast<size_t>(position) + 1;
    std::vector<float> mass(kHeads * rows);
    for (float& m : mass) m = static_cast<float>(random() % 1000) / static_cast<float>(500 * rows);
    std::fill_n(mass.begin() + 5 * rows, rows, 0.0f);  // a head without any
    for (size_t i = 0; i < mass.size(); ++i) attention[i % rows] += mass[i] / double{kHeads};
    change();
    scorer.ObserveGroup(0,
                        {.mass = mass,
                         .num_mass_heads = kHeads,
                         .num_rows = position + 1,
                         .num_new_rows = 1,
                         .num_layers_counted = 12},
                        {.first_position = position,
                         .num_tokens = 1,
                         .keys = keys,
                         .hidden_layers = layers,
                         .hidden = hidden});
  }
  const auto scores = scorer.Scores(0);
  return {{scores.begin(), scores.end()}, attention};
}

TEST(SegmentScorer, PartsInAnyOrderGiveTheSameBits) {
  for (const std::string policy : {"thinkv", "thinkv_original", "segment_hs"}) {
    int num_calls = 0;
    const RunParts backwards = [&](int num_parts, const std::function<void(int)>& work) {
      EXPECT_GT(num_parts, 1);
      for (int part = num_parts - 1; part >= 0; --part) work(part);
      ++num_calls;
    };
    const WideThought thought = ThinkWide(policy, backwards);
    EXPECT_EQ(num_calls, 40);
    EXPECT_EQ(thought.scores, ThinkWide(policy, {}).scores) << policy;
    if (policy == "segment_hs") continue;  // ranks by something else
    for (size_t row = 0; row < thought.scores.size(); ++row) {
      const double rank = thought.attention[row] / (1 + thought.attention[row]);
      const float score = thought.scores[row];
      EXPECT_NEAR(score < 0 ? score + 1 : score, rank, 1e-5) << policy << " row " << row;
    }
  }
}

}  // namespace
}  // namespace ebb
