// What the tiers are for: a sequence whose cache the system has no memory for.
#include <gmock/gmock.h>

#include "tests/engine/engine_fixture.h"
#include "tests/support/memory_limit.h"
#include "tests/support/numbers.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it needs the CPU's own memory");

// 8 KiB a token, in many layers, as two of them lie in memory when T1 is a file: 40 MiB.
constexpr int kTokens = 5000;

RandomGgufOptions SixteenLayers() {
  return {.num_layers = 16,
          .embed_dim = 64,
          .num_q_heads = 2,
          .num_kv_heads = 2,
          .head_dim = 64,
          .feed_forward_dim = 64,
          .context = 8192};
}

TEST(MemoryLimit, ASequenceFitsWithTiersWhereTheFullCacheDoesNot) {
  if (!MemoryLimitsHold()) EBB_SKIP_WITHOUT("memory_limits") << "RLIMIT_AS has no effect";
  const TempFolder folder;
  const std::string path = folder.File("deep.gguf");
  ExpectOk(WriteRandomGguf(SixteenLayers(), path));
  const auto model = Model::Load({.path = path});
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const TierSetting tiers = {.engine = {.t0_cap_bytes = 8 * kMiB}};
  const auto full = Engine::Create(*model, {.threads = 1, .prefill_chunk = 64});
  const auto tiered =
      Engine::Create(*model, {.threads = 1, .tiers = tiers.engine, .prefill_chunk = 64});
  if (tiered.status().code() == StatusCode::kUnsupported)
    EBB_SKIP_WITHOUT("direct_io") << "no direct reads";
  ASSERT_TRUE(full.ok() && tiered.ok());
  const std::vector<Token> text = RandomTokens(SixteenLayers(), kTokens, 1);
  // The graphs' buffers are made in the first steps, before the limit.
  const auto warm_up = [&](const PolicySpec& policy, Engine& engine) {
    auto session = Open(engine, policy);
    ExpectOk(session->Prefill(std::span(text).first(64)));
    ExpectOk(session->Decode(1));
  };
  PolicySpec policy = {.name = "attention", .tiers = tiers.shares};
  warm_up({}, **full);
  warm_up(policy, **tiered);

  const MemoryLimit limit(32 * kMiB);
  {
    auto session = Open(**full);
    const Status status = session->Prefill(text).status;
    EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(status.message(), testing::HasSubstr("the system refused"));
    EXPECT_GT(session->next_position(), 1000) << "it was the cache that was too large";
  }
  auto session = Open(**tiered, policy);
  ExpectOk(session->Prefill(text));
  for (int i = 0; i < 100; ++i) ExpectOk(session->Decode(1));
  EXPECT_EQ(session->next_position(), kTokens + 100);
  EXPECT_EQ(session->accounting().rows_evicted, 0);
}

}  // namespace
}  // namespace ebb
