// The whole engine against libllama: prefill, then decode steps over the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/lab/pebble.h"
#include "ebb/model.h"
#include "tests/support/engine/engine_logits.h"
#include "tests/support/engine/libllama_runner.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr double kLogitsTolerance = 1e-3;  // of the logits' standard deviation

class ParityTest : public testing::TestWithParam<ModelVariant> {};

TEST_P(ParityTest, LogitsAreThoseOfLibllama) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ASSERT_TRUE(WriteRandomGguf(GetParam().options, path).ok());
  const std::vector<Token> tokens = RandomTokens(GetParam().options, 64, 11);

  auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto ours = EngineLogits(
      *model, tokens, {.engine = {.threads = 2, .kv_type = RowType::kF32}, .num_prefill = 32});
  ASSERT_TRUE(ours.ok()) << ours.status().ToString();

  auto runner = LibllamaRunner::Create({.path = path});
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  const auto theirs = (*runner)->Append(tokens);
  ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();

  const double deviation = StandardDeviation(*theirs);
  EXPECT_GT(deviation, 0.5) << "the model is too dull to show a fault";
  EXPECT_LE(LargestDifference(*ours, *theirs), kLogitsTolerance * deviation);
}

// Ten windows deep: prompts in chunks that are longer and shorter than a window, and decode steps,
// where rows have gone. GELU, which ggml looks up in a table of f16, doubles what rounding differs.
TEST(WindowParityTest, FarBehindTheWindowLogitsAreThoseOfLibllama) {
  const RandomGgufOptions options = {.family = "gemma3",
                                     .num_layers = 7,
                                     .embed_dim = 128,
                                     .sliding_window = 40,
                                     .head_dim = 64,
                                     .feed_forward_dim = 192,
                                     .rope_base = 1e6f};
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ASSERT_TRUE(WriteRandomGguf(options, path).ok());
  const std::vector<Token> tokens = RandomTokens(options, 440, 12);
  auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto runner = LibllamaRunner::Create({.path = path});
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  const auto theirs = (*runner)->Append(tokens);
  ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
  for (const int chunk : {512, 64, 30, 7}) {
    EngineLogitsOptions ours_options = {.num_prefill = 340};
    ours_options.engine = {.threads = 2, .kv_type = RowType::kF32, .prefill_chunk = chunk};
    const auto ours = EngineLogits(*model, tokens, ours_options);
    ASSERT_TRUE(ours.ok()) << ours.status().ToString();
    EXPECT_LE(LargestDifference(*ours, *theirs), 2 * kLogitsTolerance * StandardDeviation(*theirs))
        << chunk;
  }
}

// What training/pebble exports, over whole problems of its own: llama.cpp answers as ebb does.
// Products with matrices in f16 round what they multiply: 0.2 to 0.7 % of the logits' deviation.
TEST(PebbleParityTest, LogitsAreThoseOfLibllama) {
  const std::string path = EBB_SOURCE_DIR "/training/pebble/pebble.gguf";
  auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  auto runner = LibllamaRunner::Create({.path = path});
  ASSERT_TRUE(runner.ok()) << runner.status().ToString();
  for (uint64_t number = 0; number < 4; ++number) {
    const PebbleProblem problem = MakePebbleProblem(5, number);
    const std::vector<Token> tokens(problem.tokens.begin(), problem.tokens.end());
    const auto ours =
        EngineLogits(*model, tokens,
                     {.engine = {.threads = 2, .kv_type = RowType::kF32},
                      .num_prefill = static_cast<size_t>(problem.num_question_tokens)});
    ASSERT_TRUE(ours.ok()) << ours.status().ToString();
    (*runner)->Forget();
    const auto theirs = (*runner)->Append(tokens);
    ASSERT_TRUE(theirs.ok()) << theirs.status().ToString();
    EXPECT_LE(LargestDifference(*ours, *theirs), 0.02 * StandardDeviation(*theirs));
    // The word before "." and the end token.
    const size_t answer = tokens.size() - 4;
    EXPECT_EQ(PebbleVocabulary()[tokens[answer + 1]], " " + problem.answer);
    const std::span<const float> logits =
        std::span(*theirs).subspan(answer * (*runner)->vocab_size(), (*runner)->vocab_size());
    EXPECT_EQ(std::ranges::max_element(logits) - logits.begin(), tokens[answer + 1]);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, ParityTest, testing::ValuesIn(ModelVariants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb
