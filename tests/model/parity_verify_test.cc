// Parity over a thousand tokens: the default model, as it is and with F32 weights, and random
// models of every variant.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/sampler.h"
#include "tests/support/default_model.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-3;  // of the logits' standard deviation
constexpr size_t kNumTokens = 1000;
constexpr size_t kNumPrefill = 64;
constexpr int kThreads = 1;  // a busy machine makes more of them spin

using FlashAttention = LibllamaOptions::FlashAttention;

std::vector<float> Ours(const std::shared_ptr<const Model>& model, const std::vector<Token>& tokens,
                        RowType kv_type) {
  auto logits = EngineLogits(
      model, tokens,
      {.engine = {.threads = kThreads, .kv_type = kv_type}, .num_prefill = kNumPrefill});
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  return logits.ok() ? *std::move(logits) : std::vector<float>();
}

// Step by step, as ours: products over many columns round in another order.
std::vector<float> Libllamas(LibllamaOptions options, const std::vector<Token>& tokens) {
  options.threads = kThreads;
  auto runner = LibllamaRunner::Create(options);
  EXPECT_TRUE(runner.ok()) << runner.status().ToString();
  if (!runner.ok()) return {};
  const std::span<const Token> all(tokens);
  auto logits = (*runner)->Append(all.first(kNumPrefill));
  EXPECT_TRUE(logits.ok()) << logits.status().ToString();
  for (size_t i = kNumPrefill; i < tokens.size(); ++i) {
    const auto step = (*runner)->Append(all.subspan(i, 1));
    EXPECT_TRUE(step.ok()) << step.status().ToString();
    if (!step.ok()) return {};
    logits->insert(logits->end(), step->begin(), step->end());
  }
  return *std::move(logits);
}

class VariantParityTest : public testing::TestWithParam<ModelVariant> {};

TEST_P(VariantParityTest, AThousandTokensHaveTheLogitsOfLibllama) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ASSERT_TRUE(WriteRandomGguf(GetParam().options, path).ok());
  const std::vector<Token> tokens = RandomTokens(GetParam().options, kNumTokens, 13);
  auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const std::vector<float> theirs = Libllamas({.path = path}, tokens);
  const double deviation = StandardDeviation(theirs);
  EXPECT_GT(deviation, 0.5) << "the model is too dull to show a fault";
  // ggml looks GELU up in a table of f16, in which a difference of rounding becomes one of 11 bits.
  const double tolerance = GetParam().options.family == "gemma3" ? 3 * kTolerance : kTolerance;
  EXPECT_LE(LargestDifference(Ours(*model, tokens, RowType::kF32), theirs), tolerance * deviation);
}

INSTANTIATE_TEST_SUITE_P(Variants, VariantParityTest, testing::ValuesIn(ModelVariants()),
                         [](const auto& info) { return info.param.name; });

class DefaultModelParityTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = DefaultModelPath();
    if (path_.empty()) EBB_SKIP_WITHOUT("default_model") << kNoDefaultModel;
  }
  [[nodiscard]] static std::shared_ptr<const Model> Load(const ModelOptions& options) {
    auto model = Model::Load(options);
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return model.ok() ? *std::move(model) : nullptr;
  }
  void WriteDequantized() {
    wide_path_ = folder_.File("wide.gguf");
    auto wide = GgufEdit::Open(path_);
    ASSERT_TRUE(wide.ok()) << wide.status().ToString();
    wide->Dequantize();
    ASSERT_TRUE(wide->Save(wide_path_).ok());
  }
  // Text as the model writes it: a prompt and what it makes of it, sampled.
  static std::vector<Token> SampledText(const std::shared_ptr<const Model>& model,
                                        uint64_t seed = 17) {
    auto tokens = model->Tokenize("The tide comes in twice a day, and each time the harbour",
                                  Model::AddBos::kAsModelSays, Model::Specials::kAsText);
    EXPECT_TRUE(tokens.ok()) << tokens.status().ToString();
    auto engine = Engine::Create(model, {.threads = kThreads});
    auto session = (*engine)->OpenSession({});
    auto sampler = Sampler::Create(*model, {.temperature = 1, .seed = seed});
    EXPECT_TRUE((*session)->Prefill(*tokens).ok());
    while (tokens->size() < kNumTokens) {
      const auto token = (*sampler)->Sample((*session)->logits(), (*session)->next_position());
      EXPECT_TRUE(token.ok()) << token.status().ToString();
      if (!token.ok() || !(*session)->Decode(*token).ok()) return {};
      tokens->push_back(*token);
    }
    return *tokens;
  }

  TempFolder folder_;
  std::string path_;
  std::string wide_path_;
};

TEST_F(DefaultModelParityTest, WithF32WeightsAThousandTokensHaveTheLogitsOfLibllama) {
  const auto model = Load({.path = path_, .weights = WeightMode::kDequantize});
  ASSERT_NE(model, nullptr);
  const std::vector<Token> tokens = SampledText(model);
  ASSERT_NO_FATAL_FAILURE(WriteDequantized());
  const std::vector<float> theirs = Libllamas({.path = wide_path_}, tokens);
  const double deviation = StandardDeviation(theirs);
  const double f32_rows = LargestDifference(Ours(model, tokens, RowType::kF32), theirs);
  const double f16_rows = LargestDifference(Ours(model, tokens, RowType::kF16), theirs);
  RecordProperty("f32_rows", std::to_string(f32_rows));
  RecordProperty("f16_rows", std::to_string(f16_rows));
  EXPECT_LE(f32_rows, kTolerance * deviation);
  EXPECT_LE(f16_rows, 0.03);
  EXPECT_GT(f16_rows, f32_rows);
}

// What quantised activations make of differences in the last bit is chance: of one text ebb's mean
// is above libllama's own by up to 2 %, of another below it by up to 4 %. So the mean of several,
// which on a processor with AMX is above it by 2.5 %, and below it on others.
TEST_F(DefaultModelParityTest, AsStoredItIsNoFurtherFromLibllamaThanLibllamaFromItself) {
  const auto model = Load({.path = path_});
  ASSERT_NE(model, nullptr);
  const int vocab_size = model->shape().vocab_size;
  const auto libllamas = [&](const std::vector<Token>& tokens, FlashAttention flash_attention) {
    return Libllamas({.path = path_, .kv_type = RowType::kF16, .flash_attention = flash_attention},
                     tokens);
  };
  double own = 0, ours = 0;
  constexpr int kTexts = 4;
  for (int text = 0; text < kTexts; ++text) {
    const std::vector<Token> tokens = SampledText(model, 17 + text);
    const std::vector<float> plain = libllamas(tokens, FlashAttention::kOff);
    const double own_here = MeanKl(plain, libllamas(tokens, FlashAttention::kOn), vocab_size);
    const double ours_here = MeanKl(plain, Ours(model, tokens, RowType::kF16), vocab_size);
    RecordProperty("mean_kl_of_text_" + std::to_string(text),
                   std::to_string(ours_here) + ", libllama " + std::to_string(own_here));
    own += own_here / kTexts;
    ours += ours_here / kTexts;
  }
  RecordProperty("mean_kl_of_libllama", std::to_string(own));
  RecordProperty("mean_kl_of_ebb", std::to_string(ours));
  EXPECT_GT(own, 0);
  EXPECT_LE(ours, 1.05 * own);
}

}  // namespace
}  // namespace ebb
