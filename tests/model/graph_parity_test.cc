// The decoder graph against libllama, without the cache.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "tests/model/graph_runner.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-3;  // of the logits' standard deviation
constexpr size_t kNumTokens = 64;

class GraphParity {
 protected:
  void Write(const RandomGgufOptions& options) {
    tokens_ = RandomTokens(options, kNumTokens, 7);
    const Status status = WriteRandomGguf(options, path_);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  [[nodiscard]] std::vector<float> Ours(const ModelOptions& options) const {
    auto model = Model::Load(options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? RunGraph(**model, tokens_).logits : std::vector<float>();
  }
  [[nodiscard]] std::vector<float> Libllamas(const LibllamaOptions& options) const {
    auto runner = LibllamaRunner::Create(options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    if (!runner.ok()) return {};
    auto logits = (*runner)->Append(tokens_);
    EXPECT_TRUE(logits.ok()) << logits.status().ToString();
    return logits.ok() ? *logits : std::vector<float>();
  }
  static void ExpectEqual(const std::vector<float>& ours, const std::vector<float>& theirs,
                          double tolerance) {
    const double deviation = StandardDeviation(theirs);
    EXPECT_GT(deviation, 0.5) << "the model is too dull to show a fault";
    EXPECT_LE(LargestDifference(ours, theirs), tolerance * deviation);
  }

  TempFolder folder_;
  std::string path_ = folder_.File("model.gguf");
  std::vector<Token> tokens_;
};

class GraphParityTest : public GraphParity, public testing::TestWithParam<ModelVariant> {};

TEST_P(GraphParityTest, LogitsAreThoseOfLibllama) {
  Write(GetParam().options);
  ExpectEqual(Ours({.path = path_}), Libllamas({.path = path_}), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Variants, GraphParityTest, testing::ValuesIn(ModelVariants()),
                         [](const auto& info) { return info.param.name; });

class ManyLayersParityTest : public GraphParity, public testing::Test {};

// As many layers as Gemma 3 of 27 B has, whose attention is scaled by the width of the hidden state
// per head (48 here) and not by the size of a head (32). So many layers amplify rounding.
TEST_F(ManyLayersParityTest, GemmaOfSixtyTwoLayersScalesAttentionAsLibllamaDoes) {
  Write({.family = "gemma3",
         .num_layers = 62,
         .embed_dim = 96,
         .num_q_heads = 2,
         .num_kv_heads = 1,
         .sliding_window = 20,
         .head_dim = 32,
         .feed_forward_dim = 64});
  ExpectEqual(Ours({.path = path_}), Libllamas({.path = path_}), 5 * kTolerance);
}

class WeightTypeParityTest : public GraphParity, public testing::TestWithParam<std::string> {};

// The same products over the same integers: only attention's rounding may differ, which
// quantised activations amplify.
TEST_P(WeightTypeParityTest, LogitsAreThoseOfLibllama) {
  constexpr double kQuantizedTolerance = 0.05;
  Write({.weight_type = GetParam()});
  ExpectEqual(Ours({.path = path_}), Libllamas({.path = path_}), kQuantizedTolerance);
}

TEST_P(WeightTypeParityTest, DequantizedLogitsAreThoseOfADequantizedFile) {
  Write({.weight_type = GetParam()});
  const std::string wide_path = folder_.File("wide.gguf");
  auto wide = GgufEdit::Open(path_);
  ASSERT_TRUE(wide.ok()) << wide.status().ToString();
  wide->Dequantize();
  ASSERT_TRUE(wide->Save(wide_path).ok());
  ExpectEqual(Ours({.path = path_, .weights = WeightMode::kDequantize}),
              Libllamas({.path = wide_path}), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightTypeParityTest,
                         testing::Values("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1",
                                         "q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "iq4_nl",
                                         "iq4_xs"),
                         [](const auto& info) { return info.param; });

class RopeOverrideParityTest : public GraphParity, public testing::Test {};

TEST_F(RopeOverrideParityTest, ScalingThatTheUserAskedForIsLibllamas) {
  using Rope = RandomGgufOptions::Rope;
  for (const Rope rope : {Rope::kNone, Rope::kYarn, Rope::kLlama3}) {
    // A quarter of it is trained when the file scales by YaRN.
    Write({.context = 256, .rope = rope});
    const int original_context = rope == Rope::kYarn ? 64 : 256;
    for (const RopeScaling scaling :
         {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kYarn}) {
      const float factor = scaling == RopeScaling::kNone ? 0 : 8;
      ExpectEqual(Ours({.path = path_, .rope_scaling = scaling, .rope_factor = factor}),
                  Libllamas({.path = path_,
                             .rope_scaling = scaling,
                             .rope_factor = factor,
                             .original_context = original_context}),
                  kTolerance);
    }
  }
}

TEST_F(RopeOverrideParityTest, ScalingMatters) {
  Write({.context = 256});
  const std::vector<float> plain = Ours({.path = path_});
  for (const RopeScaling scaling : {RopeScaling::kLinear, RopeScaling::kYarn}) {
    const auto scaled = Ours({.path = path_, .rope_scaling = scaling, .rope_factor = 8});
    EXPECT_GT(LargestDifference(scaled, plain), 0.1 * StandardDeviation(plain));
  }
}

}  // namespace
}  // namespace ebb
