// The whole engine against libllama: prefill, then decode steps over the cache.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "tests/support/engine_logits.h"
#include "tests/support/libllama_runner.h"
#include "tests/support/logits.h"
#include "tests/support/model_variants.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

constexpr double kTolerance = 1e-3;  // of the logits' standard deviation

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
  EXPECT_LE(LargestDifference(*ours, *theirs), kTolerance * deviation);
}

INSTANTIATE_TEST_SUITE_P(Variants, ParityTest, testing::ValuesIn(ModelVariants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb
