// What a step computes in: a prompt's buffers go back to the system behind it.
#include <gtest/gtest.h>

#include "src/base/sanitizers.h"
#include "tests/engine/engine_fixture.h"
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

}  // namespace
}  // namespace ebb
