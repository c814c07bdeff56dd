// A session whose cache is larger than T0 comes back into the tiers that it lay in.
#include "tests/engine/sessions/session_fixture.h"

namespace ebb {
namespace {

// 16 (layer, kv head) pairs in f32: 256 rows of each in 2 MiB, the least an arena takes.
constexpr uint64_t kT0Bytes = uint64_t{2} << 20;
const RandomGgufOptions kModelOptions = SixteenStreamsOptions();

std::unique_ptr<Engine> EngineOf(const std::string& path, const TierSetting& tiers) {
  const auto model = Model::Load({.path = path});
  EXPECT_TRUE(model.ok()) << model.status().ToString();
  auto engine =
      Engine::Create(*model, {.threads = 1, .kv_type = RowType::kF32, .tiers = tiers.engine});
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return *std::move(engine);
}

SessionOptions OptionsOf(const TierSetting& tiers) {
  SessionOptions options;
  options.policy = {.name = "attention"};
  options.policy.tiers = tiers.shares;
  options.policy.window = 16;
  options.policy.interval = 8;
  return options;
}

TEST(SessionCaps, ACacheLargerThanT0IsResumedUnderItsCap) {
  const TempFolder folder;
  const std::string model = folder.File("caps.gguf");
  const std::string path = folder.File("session");
  ExpectOk(WriteRandomGguf(kModelOptions, model));
  for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
    const TierSetting tiers = {
        .engine = {.t0_cap_bytes = kT0Bytes, .t1 = place, .t2_type = CompressedType::kInt8},
        .shares = {.t2_share = 0.2}};
    const SessionOptions options = OptionsOf(tiers);
    auto engine = EngineOf(model, tiers);
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(RandomTokens(kModelOptions, 1200, 3)));
    for (int i = 0; i < 60; ++i) ExpectOk(session->Decode(i));
    const CacheAccounting cache = session->accounting();
    EXPECT_GT(cache.tiers[1].row_bytes, 3 * kT0Bytes);
    EXPECT_GT(cache.tiers[2].rows, 0);
    ExpectOk(SaveSession(*session, path));
    auto fresh = EngineOf(model, tiers);
    auto resumed = ResumeSession(*fresh, path, options);
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    EXPECT_LE(fresh->arena_accounting(Tier::kT0).peak_bytes, kT0Bytes);
    for (int i = 0; i < 40; ++i) {
      ExpectOk(session->Decode(i));
      ExpectOk(resumed->session->Decode(i));
    }
    EXPECT_EQ(resumed->session->logits_hash(), session->logits_hash());
    EXPECT_LE(fresh->arena_accounting(Tier::kT0).peak_bytes, kT0Bytes);
    resumed->session.reset();
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      EXPECT_EQ(fresh->arena_accounting(tier).used_bytes, 0u);
    }
  }
}

TEST(SessionCaps, ATierWithoutRoomIsToldAndGivesEverythingBack) {
  const TempFolder folder;
  const std::string model = folder.File("caps.gguf");
  const std::string path = folder.File("session");
  ExpectOk(WriteRandomGguf(kModelOptions, model));
  SessionOptions options;
  auto engine = EngineOf(model, {});
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(RandomTokens(kModelOptions, 600, 3)));
  ExpectOk(SaveSession(*session, path));
  const auto loaded = Model::Load({.path = model});
  auto small = Engine::Create(
      *loaded, {.threads = 1, .kv_type = RowType::kF32, .kv_cap_bytes = 2 * kT0Bytes});
  const Status status = ResumeSession(**small, path, options).status();
  EXPECT_EQ(status.code(), StatusCode::kT0Full) << status.ToString();
  EXPECT_EQ((*small)->arena_accounting(Tier::kT0).used_bytes, 0u);
  auto other = Open(**small, options);
  ExpectOk(other->Prefill(RandomTokens(kModelOptions, 100, 3)));
}

// A cap that ends a generation ends it again when the session is resumed, at the same token.
TEST(SessionCaps, ADecisionThatACapRefusedIsRefusedAgain) {
  const TempFolder folder;
  const std::string model = folder.File("caps.gguf");
  const std::string path = folder.File("session");
  ExpectOk(WriteRandomGguf(kModelOptions, model));
  const TierSetting tiers = {
      .engine = {.t0_cap_bytes = kT0Bytes, .t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.4}};
  const SessionOptions options = OptionsOf(tiers);
  auto engine = EngineOf(model, tiers);
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(RandomTokens(kModelOptions, 100, 3)));
  Status status;
  while (status.ok()) status = session->Decode(5).status;
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  const Position end = session->next_position();
  ExpectOk(SaveSession(*session, path));
  auto fresh = EngineOf(model, tiers);
  auto resumed = ResumeSession(*fresh, path, options);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* of : {session.get(), resumed->session.get()}) {
    EXPECT_EQ(of->Decode(5).status.message(), status.message());
    EXPECT_EQ(of->next_position(), end);
    EXPECT_EQ(of->Prefill(RandomTokens(kModelOptions, 3, 3)).status.message(), status.message());
    // Behind a roll-back nothing is owed.
    ExpectOk(of->TruncateTo(end - 20));
    ExpectOk(of->Decode(5));
  }
}

}  // namespace
}  // namespace ebb
