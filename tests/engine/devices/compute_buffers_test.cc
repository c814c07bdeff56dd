// What a step computes in: a prompt's buffers go back to the system behind it.
#include <gtest/gtest.h>

#include "ebb/fit.h"
#include "src/base/sanitizers.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/process_memory.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it needs the CPU's own graphs");

// A wide layer: its products of 512 tokens alone take 32 MiB each.
RandomGgufOptions WideModel() {
  return {.num_layers = 2,
          .embed_dim = 64,
          .num_q_heads = 2,
          .num_kv_heads = 2,
          .head_dim = 32,
          .feed_forward_dim = 16384,
          .context = 1024};
}

TEST(ComputeBuffers, OfAPromptGoBackBehindItAndComeAgain) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  constexpr uint64_t kLayerBytes = uint64_t{32} << 20;
  const TempFolder folder;
  const std::string path = folder.File("wide.gguf");
  ExpectOk(WriteRandomGguf(WideModel(), path));
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto engine = Engine::Create(*model, {.threads = 1});
  ASSERT_TRUE(engine.ok());
  auto session = Open(**engine);
  ExpectOk(session->Prefill(RandomTokens(WideModel(), 8, 1)));
  ExpectOk(session->Decode(1));
  const uint64_t before = MeasureProcess().resident_bytes;
  for (int turn = 0; turn < 2; ++turn) {
    ExpectOk(session->Prefill(RandomTokens(WideModel(), 400, 2)));
    EXPECT_GT(MeasureProcess().resident_bytes, before + kLayerBytes / 2) << turn;
    ExpectOk(session->Decode(1));
    EXPECT_LT(MeasureProcess().resident_bytes, before + kLayerBytes / 4) << turn;
  }
}

class PlannedGraphs : public testing::TestWithParam<LibraryModelOptions> {};

// What `ebb fit` and --memory count for a prompt, where the sizes of the model say little about its
// graph: queries of 576 channels for one kv head, and experts.
TEST_P(PlannedGraphs, HoldWhatAPromptTakes) {
  if (kShadowMemory) GTEST_SKIP() << "a sanitizer keeps shadow memory of its own";
  // The last step cuts its rows into slices, and is wide enough to leave the buffers.
  constexpr int kTokens = 5 * 512 + 100;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteLibraryModel(GetParam(), path));
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto fit_model = FitModelOf(**model);
  ASSERT_TRUE(fit_model.ok()) << fit_model.status().ToString();
  const auto engine = Engine::Create(*model, {.threads = 2});
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  const std::vector<Token> prompt(kTokens, 5);
  ExpectOk(Open(**engine)->Prefill(std::span(prompt).first(8)));  // brings in code and weights
  const uint64_t before = MeasureProcess().resident_bytes;
  const auto session = Open(**engine);
  ExpectOk(session->Prefill(prompt));
  const uint64_t taken = MeasureProcess().resident_bytes - before;
  const auto bytes = FitRequestInto(
      *fit_model,
      {.context = kTokens, .prompt_tokens = kTokens, .threads = 2, .prompts_at_any_time = true});
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_LE(taken, bytes->compute + bytes->t0 + bytes->tables + bytes->states);
  constexpr uint64_t kSpare = uint64_t{4} << 20;  // of the nodes of small graphs
  EXPECT_GE(taken + kSpare, (bytes->compute + bytes->t0) / 2);
  RecordProperty("taken", std::to_string(taken));
  RecordProperty("foretold", std::to_string(bytes->compute + bytes->t0));
}

LibraryModelOptions PlannedModel(const std::string& architecture, bool has_experts) {
  return {.architecture = architecture,
          .has_experts = has_experts,
          .weight_type = "q8_0",
          .sizes = {{"context_length", 4096}}};
}
LibraryModelOptions LatentModel() {
  LibraryModelOptions model = PlannedModel("deepseek2", true);
  model.sizes["attention.head_count"] = 16;
  return model;
}

INSTANTIATE_TEST_SUITE_P(OfLibllama, PlannedGraphs,
                         testing::Values(LatentModel(), PlannedModel("qwen3moe", true),
                                         PlannedModel("gemma2", false),
                                         PlannedModel("lfm2", false)),
                         [](const auto& info) { return info.param.architecture; });

}  // namespace
}  // namespace ebb
