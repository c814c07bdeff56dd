// Assistants of Gemma 4 models: their logits are libllama's; others are refused.
#include <gmock/gmock.h>

#include <string>

#include "ebb/fit.h"
#include "tests/engine/guessed_text.h"
#include "tests/engine/heads/head_cases.h"
#include "tests/support/engine/assistant_reference.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device runs no heads");

using testing::HasSubstr;

constexpr int kAssistantContext = 256;

class Assistant : public testing::TestWithParam<HeadCase> {};

TEST_P(Assistant, GuessesAsLibllamaDoes) {
  const TempFolder folder;
  const HeadCase one = GetParam().WithF32Weights();
  const LoadedHead loaded(one, folder);
  auto reference =
      AssistantReference::Create(one.ModelFile(folder), one.HeadFile(folder), kAssistantContext);
  ExpectOk(reference.status());
  auto engine = loaded.MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  constexpr int kGuesses = 3;
  ExpectGuessesOf(**reference, loaded.Open(*engine, {.most_guesses = kGuesses}),
                  TextTokens(*loaded.plain, 90, 1), TextTokens(*loaded.plain, 24, 2), kGuesses);
}

INSTANTIATE_TEST_SUITE_P(Heads, Assistant, testing::ValuesIn(AssistantCases()),
                         [](const auto& info) { return info.param.name; });

TEST(AssistantTest, HasNoCacheOfItsOwn) {
  const TempFolder folder;
  const LoadedHead loaded(AssistantCases().front(), folder);
  const uint64_t cap = uint64_t{64} << 20;
  EXPECT_EQ(loaded.MakeEngine({.threads = 1, .kv_cap_bytes = cap})->options().kv_cap_bytes, cap);
  const auto fit = MeasureFitModel(*loaded.guessing, {.draft_model = loaded.head});
  ExpectOk(fit.status());
  ASSERT_NE(fit->draft, nullptr);
  EXPECT_TRUE(fit->draft_reads_cache);
  EXPECT_EQ(fit->draft_hidden_rows, 1);
}

// Rows in a file would have to be read for each guess.
TEST(AssistantTest, DoesNotReadAFile) {
  const TempFolder folder;
  const LoadedHead loaded(AssistantCases().front(), folder);
  auto engine = loaded.MakeEngine({.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kFile}});
  SessionOptions options = {.speculation = Speculation::kAssistant};
  options.policy.tiers = TierShares{.t0_share = 0.3};
  options.policy.granularity = Granularity::kLayer;
  const auto refused = engine->OpenSession(options);
  ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("and T1 is a file"));
  options.speculation = Speculation::kAuto;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(TextTokens(*loaded.plain, 20, 1)));
  EXPECT_THAT(session->last_signals().hidden, testing::IsEmpty());
}

TEST(AssistantTest, IsRefusedForAnotherModel) {
  const TempFolder folder;
  AssistantCases().front().Write(folder);
  const auto model = LoadModel({.path = AssistantCases().front().ModelFile(folder)});
  const auto error_of = [&](const RandomAssistantOptions& options,
                            const std::shared_ptr<const Model>& target) {
    ExpectOk(WriteRandomAssistant(options, folder.File("other.gguf")));
    const auto loaded = Model::Load({.path = folder.File("other.gguf"), .target = target});
    EXPECT_EQ(loaded.status().code(), StatusCode::kInvalidArgument);
    return loaded.status().message();
  };
  EXPECT_THAT(error_of({}, nullptr), HasSubstr("(--draft-model)"));
  EXPECT_THAT(error_of({.target_embed_dim = 192}, model),
              HasSubstr("the head reads hidden rows of 192 numbers"));
  EXPECT_THAT(error_of({.head_dim = 32}, model),
              HasSubstr("reads 2 heads of 32 elements in a window of 0 tokens"));
  EXPECT_THAT(error_of({.sliding_window = 16}, model), HasSubstr("in a window of 16 tokens"));
  EXPECT_THAT(error_of({.num_tokens = 100}, model), HasSubstr("vocabulary of 100 tokens"));
  RandomGgufOptions llama = Eagle3Target();
  llama.num_tokens = 128;
  llama.tokenizer = RandomGgufOptions::Tokenizer::kMinimal;
  EXPECT_THAT(error_of({}, RandomModel(llama)), HasSubstr("guesses for Gemma 4 models (gemma4)"));
  ExpectOk(WriteLibraryModel(
      {.architecture = "gemma4", .sizes = {{"block_count", 2}, {"nextn_predict_layers", 1}}},
      folder.File("one_layer.gguf")));
  EXPECT_THAT(error_of({}, LoadModel({.path = folder.File("one_layer.gguf")})),
              HasSubstr("reads rows of two layers, and"));
}

}  // namespace
}  // namespace ebb
