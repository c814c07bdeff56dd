// Layers for multi-token prediction (MTP) in the model's file: their logits are libllama's.
#include <gmock/gmock.h>

#include <string>

#include "ebb/fit.h"
#include "src/base/page_units.h"
#include "src/session/session_impl.h"
#include "tests/engine/guessed_text.h"
#include "tests/engine/heads/head_cases.h"
#include "tests/support/engine/mtp_reference.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

using testing::HasSubstr;

constexpr int kMtpContext = 256;  // that the models were made for

class Mtp : public testing::TestWithParam<HeadCase> {};

TEST_P(Mtp, GuessesAsLibllamaDoes) {
  const TempFolder folder;
  // Quantised weights choose other experts at the least rounding.
  const HeadCase one = GetParam().WithF32Weights();
  const LoadedHead loaded(one, folder);
  auto reference = MtpReference::Create(one.ModelFile(folder), kMtpContext);
  ExpectOk(reference.status());
  auto engine = loaded.MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  constexpr int kGuesses = 3;
  ExpectGuessesOf(**reference, loaded.Open(*engine, {.most_guesses = kGuesses}),
                  TextTokens(*loaded.plain, 90, 1), TextTokens(*loaded.plain, 24, 2), kGuesses);
}

INSTANTIATE_TEST_SUITE_P(Families, Mtp, testing::ValuesIn(MtpCases()),
                         [](const auto& info) { return info.param.name; });

TEST(MtpTest, IsLoadedAndCountedOnlyIfItIsWanted) {
  const TempFolder folder;
  const LoadedHead loaded(MtpCases()[1], folder);
  ASSERT_EQ(loaded.guessing->mtp_obstacle(), "");
  EXPECT_THAT(loaded.plain->mtp_obstacle(), HasSubstr("without its MTP layer"));
  EXPECT_GT(loaded.guessing->weight_bytes(), loaded.plain->weight_bytes());
  EXPECT_EQ(loaded.guessing->fingerprint(), loaded.plain->fingerprint());
  EXPECT_EQ(loaded.guessing->shape().num_layers, loaded.plain->shape().num_layers);
  const auto fit = MeasureFitModel(*loaded.guessing, {});
  ExpectOk(fit.status());
  ASSERT_NE(fit->draft, nullptr);
  EXPECT_EQ(fit->draft->shape.num_layers, 1);
  EXPECT_EQ(fit->draft_hidden_rows, 1);
  EXPECT_EQ(MeasureFitModel(*loaded.plain, {})->draft, nullptr);
}

// The least cap that the model takes without the layer is enough with it.
TEST(MtpTest, LeavesCapsWhole) {
  const TempFolder folder;
  const LoadedHead loaded(MtpCases()[1], folder);
  const EngineOptions options = {.threads = 1, .kv_cap_bytes = kExtentBytes};
  const auto engine = TryMakeEngineOf(loaded.guessing, options);
  ExpectOk(engine.status());
  EXPECT_EQ((*engine)->options().kv_cap_bytes, kExtentBytes);
  EXPECT_EQ(Internals::Of(**engine).draft->options().kv_cap_bytes, kExtentBytes);
  EXPECT_EQ(FitRequestOf(*loaded.guessing, options, {}, 0).kv_cap_bytes, kExtentBytes);
  const auto fit = MeasureFitModel(*loaded.guessing, options);
  ExpectOk(fit.status());
  EXPECT_EQ(fit->draft_cap_bytes, kExtentBytes);
}

TEST(MtpTest, IsRefusedWithAReason) {
  const TempFolder folder;
  const LoadedHead loaded(MtpCases()[1], folder);
  auto engine = MakeEngineOf(loaded.plain);
  const auto refused = engine->OpenSession({.speculation = Speculation::kMtp});
  ASSERT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("mtp: the model was loaded without"));
  ExpectOk(engine->OpenSession({.speculation = Speculation::kAuto}).status());
}

// A file without such a layer loads as before.
TEST(MtpTest, MostFilesHaveNone) {
  const TempFolder folder;
  const std::string path = folder.File("random.gguf");
  ExpectOk(WriteRandomGguf(SmallModelOptions(), path));
  const auto model = Model::Load({.path = path, .loads_mtp = true});
  ExpectOk(model.status());
  EXPECT_EQ((*model)->mtp_obstacle(), "the file has no MTP layer that ebb can run");
  EXPECT_EQ((*model)->weight_bytes(), SmallModel()->weight_bytes());
}

}  // namespace
}  // namespace ebb
