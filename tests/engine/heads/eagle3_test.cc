// EAGLE-3 heads in files of their own: their logits are libllama's; heads that do not belong to the
// model are refused.
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "ebb/fit.h"
#include "tests/engine/guessed_text.h"
#include "tests/engine/heads/head_cases.h"
#include "tests/support/engine/eagle3_reference.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device runs no heads");

using testing::HasSubstr;

constexpr int kEagle3Context = 256;

class Eagle3 : public testing::TestWithParam<HeadCase> {};

TEST_P(Eagle3, GuessesAsLibllamaDoes) {
  const TempFolder folder;
  const HeadCase one = GetParam().WithF32Weights();
  const LoadedHead loaded(one, folder);
  auto reference =
      Eagle3Reference::Create(one.ModelFile(folder), one.HeadFile(folder), kEagle3Context);
  ExpectOk(reference.status());
  auto engine = loaded.MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  constexpr int kGuesses = 3;
  ExpectGuessesOf(**reference, loaded.Open(*engine, {.most_guesses = kGuesses}),
                  TextTokens(*loaded.plain, 90, 1), TextTokens(*loaded.plain, 24, 2), kGuesses);
}

// libllama has no row behind the last layer of these models.
std::vector<HeadCase> CasesOfReference() {
  std::vector<HeadCase> cases = Eagle3Cases();
  cases.back().eagle3.target_layers = {1, 0, 1};
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Heads, Eagle3, testing::ValuesIn(CasesOfReference()),
                         [](const auto& info) { return info.param.name; });

TEST(Eagle3Test, IsMeasuredForFit) {
  const TempFolder folder;
  const LoadedHead loaded(Eagle3Cases().front(), folder);
  EXPECT_EQ(loaded.head->draft_source(), Speculation::kEagle3);
  EXPECT_EQ(loaded.guessing->draft_source(), Speculation::kModel);
  const auto fit = MeasureFitModel(*loaded.guessing, {.draft_model = loaded.head});
  ExpectOk(fit.status());
  ASSERT_NE(fit->draft, nullptr);
  EXPECT_EQ(fit->draft->shape.num_layers, 1);
  EXPECT_EQ(fit->draft_hidden_rows, 3);
  EXPECT_EQ(fit->draft->weight_bytes, loaded.head->weight_bytes());
}

// A session that must not guess computes no hidden rows for the head.
TEST(Eagle3Test, ReadsNoRowsOfSessionsThatDoNotGuess) {
  const TempFolder folder;
  const LoadedHead loaded(Eagle3Cases().front(), folder);
  auto engine = loaded.MakeEngine();
  for (const std::string policy : {"full", "quest"}) {
    SessionOptions options = {.speculation = Speculation::kAuto};
    options.policy.name = policy;
    if (policy == "quest") options.policy.budget = *ParseBudget("16");
    auto session = Open(*engine, options);
    EXPECT_EQ(session->speculation_obstacle().empty(), policy == "full");
    ExpectOk(session->Prefill(TextTokens(*loaded.plain, 40, 1)));
    EXPECT_EQ(session->last_signals().hidden.size(), policy == "full" ? 3 : 0);
  }
}

class RefusedHead : public testing::Test {
 protected:
  RefusedHead() {
    ExpectOk(WriteRandomGguf(Eagle3Target(), folder_.File("model.gguf")));
    model_ = LoadModel({.path = folder_.File("model.gguf")});
  }
  // Returns the error of loading such a head for the model.
  Status ErrorOf(const RandomEagle3Options& options, RandomGgufOptions target = Eagle3Target()) {
    ExpectOk(WriteRandomEagle3(target, options, folder_.File("head.gguf")));
    return Model::Load({.path = folder_.File("head.gguf"), .target = model_}).status();
  }

  const TempFolder folder_;
  std::shared_ptr<const Model> model_;
};

TEST_F(RefusedHead, ThatBelongsToAnotherModel) {
  ExpectOk(ErrorOf({}));
  EXPECT_THAT(ErrorOf({.target_hidden_size = 256}).message(),
              HasSubstr("the head reads hidden rows of 256 numbers, and"));
  EXPECT_THAT(ErrorOf({.target_layers = {1, 3, 9}}).message(),
              HasSubstr("the head reads layers 1, 3, 9, and Random, llama, F32 has 4 layers"));
  // Three times this, in 32 bits, is two numbers more than three rows of the model.
  EXPECT_THAT(ErrorOf({.target_hidden_size = 0x55555556 + 128}).message(),
              HasSubstr("reads 3 layers of 128 numbers, 386 together"));
  EXPECT_THAT(ErrorOf({.target_layers = {1, 2, 4}}).message(), HasSubstr("behind the last layer"));
  RandomGgufOptions more_tokens = Eagle3Target();
  more_tokens.num_tokens += 10;
  EXPECT_THAT(ErrorOf({}, more_tokens).message(), HasSubstr("vocabulary of 394 tokens"));
  EXPECT_THAT(
      ErrorOf({.embed_dim = 192, .tables = RandomEagle3Options::Tables::kTargets}).message(),
      HasSubstr("embeddings of 192 x 384, and has 128 x 384"));
  const Status wrong_token = ErrorOf({.num_drafted = 50, .has_wrong_token = true});
  EXPECT_EQ(wrong_token.code(), StatusCode::kCorrupt);
  EXPECT_THAT(wrong_token.message(), HasSubstr("d2t has token 384 of a vocabulary of 384"));
}

TEST_F(RefusedHead, ThatIsUsedOtherwise) {
  ExpectOk(ErrorOf({}));
  const std::string path = folder_.File("head.gguf");
  const auto alone = Model::Load({.path = path});
  ASSERT_EQ(alone.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(alone.status().message(), HasSubstr("(--draft-model)"));
  const auto head = LoadModel({.path = path, .target = model_});
  const auto other = LoadModel({.path = folder_.File("model.gguf")});
  const auto of_other = Engine::Create(other, {.threads = 1, .draft_model = head});
  ASSERT_EQ(of_other.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(of_other.status().message(), HasSubstr("loaded for another model"));
  const auto compressed = Engine::Create(
      model_, {.threads = 1, .draft_model = head, .draft_compressed_type = CompressedType::kInt4});
  ASSERT_EQ(compressed.status().code(), StatusCode::kInvalidArgument);
  auto engine = MakeEngineOf(model_, {.threads = 1, .draft_model = head});
  for (const Speculation wrong : {Speculation::kModel, Speculation::kMtp}) {
    const auto refused = engine->OpenSession({.speculation = wrong});
    ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr("the engine guesses by a head (eagle3)"));
  }
  const auto plain = MakeEngineOf(model_)->OpenSession({.speculation = Speculation::kEagle3});
  ASSERT_EQ(plain.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(plain.status().message(), HasSubstr("eagle3: the engine has no such draft model"));
}

}  // namespace
}  // namespace ebb
