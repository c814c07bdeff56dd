// DFlash heads in files of their own: their logits are libllama's; other versions are refused.
#include <gmock/gmock.h>

#include <string>

#include "tests/engine/guessed_text.h"
#include "tests/engine/heads/head_cases.h"
#include "tests/support/engine/dflash_reference.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device runs no heads");

using testing::HasSubstr;

constexpr int kDflashContext = 256;

class Dflash : public testing::TestWithParam<HeadCase> {};

TEST_P(Dflash, GuessesAsLibllamaDoes) {
  const TempFolder folder;
  const HeadCase one = GetParam().WithF32Weights();
  const LoadedHead loaded(one, folder);
  auto reference = DflashReference::Create(one.ModelFile(folder), one.HeadFile(folder),
                                           one.dflash->block_size, kDflashContext);
  ExpectOk(reference.status());
  auto engine = loaded.MakeEngine({.threads = 1, .kv_type = RowType::kF32});
  constexpr int kGuesses = 3;
  ExpectGuessesOf(**reference, loaded.Open(*engine, {.most_guesses = kGuesses}),
                  TextTokens(*loaded.plain, 90, 1), TextTokens(*loaded.plain, 24, 2), kGuesses);
}

INSTANTIATE_TEST_SUITE_P(Heads, Dflash, testing::ValuesIn(DflashCases()),
                         [](const auto& info) { return info.param.name; });

TEST(DflashTest, OtherHeadsAreRefused) {
  const TempFolder folder;
  const std::string path = folder.File("head.gguf");
  ExpectOk(WriteRandomGguf(Eagle3Target(), folder.File("model.gguf")));
  const auto model = LoadModel({.path = folder.File("model.gguf")});
  const auto error_of = [&](const RandomDflashOptions& options,
                            const RandomGgufOptions& target = Eagle3Target()) {
    ExpectOk(WriteRandomDflash(target, options, path));
    return Model::Load({.path = path, .target = model}).status().message();
  };
  EXPECT_EQ(error_of({}), "");
  EXPECT_THAT(error_of({.has_markov_head = true}), HasSubstr("of DFlash, ebb takes the first"));
  EXPECT_THAT(error_of({.target_layers = {1, 9}}), HasSubstr("reads layers 1, 9, and Random"));
  EXPECT_THAT(
      error_of({.target_layers = {1, 2, 3, 1, 2, 3}}),
      HasSubstr("reads 6 layers of 128 numbers, 768 together, and Random, llama, F32 has 4"));
  EXPECT_THAT(error_of({.block_size = 1}), HasSubstr("blocks of 1 tokens"));
  RandomGgufOptions wider = Eagle3Target();
  wider.embed_dim = 192;
  EXPECT_THAT(error_of({}, wider), HasSubstr("the head reads hidden rows of 192 numbers"));
}

}  // namespace
}  // namespace ebb
