// Old rows in T2 (T2Rows::kOld): rows of prompts and thoughts are compressed by position.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "ebb/generate.h"
#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/logits.h"

namespace ebb {
namespace {

using testing::HasSubstr;

// Three chunks of 512 tokens, of which the last one is not full.
constexpr size_t kPromptTokens = 1200;
constexpr size_t kTextTokens = 1400;

const std::vector<Token>& OldRowsText() {
  static const std::vector<Token> kText = SomeTokens(kTextTokens + 100);
  return kText;
}

TierSetting Compressing(CompressedType type, T1Place t1 = T1Place::kNone) {
  return {.engine = {.t1 = t1, .t2_type = type}, .shares = {.t2_rows = T2Rows::kOld}};
}

std::unique_ptr<Engine> CompressingEngine(const TierSetting& tiers, int threads = 2) {
  return MakeEngineOf(DeepModel(), {.threads = threads, .tiers = tiers.engine});
}
std::unique_ptr<Session> OpenCompressing(Engine& engine, const TierSetting& tiers) {
  PolicySpec policy;
  policy.tiers = tiers.shares;
  return Open(engine, policy);
}

void DecodeOldRowsText(Session& session, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) ExpectOk(session.Decode(OldRowsText()[i]));
}

std::span<const Token> OldRowsPrompt() { return std::span(OldRowsText()).first(kPromptTokens); }

uint64_t CompressedHashOf(const TierSetting& tiers, int threads = 2) {
  auto engine = CompressingEngine(tiers, threads);
  auto session = OpenCompressing(*engine, tiers);
  ExpectOk(session->Prefill(OldRowsPrompt()));
  DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
  return session->logits_hash();
}

// Returns the root mean square distance of `found` from `expected`, relative to that of `expected`
// from zero.
double Distance(std::span<const float> expected, std::span<const float> found) {
  double distance = 0, length = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = expected[i] - found[i];
    distance += difference * difference;
    length += double{expected[i]} * expected[i];
  }
  return std::sqrt(distance / length);
}

// Returns the mean distance from the full cache's logits after each of some tokens.
double MeanErrorOf(CompressedType type) {
  const TierSetting tiers = Compressing(type);
  auto engine = CompressingEngine(tiers);
  auto full = Open(*engine, PolicySpec());
  auto session = OpenCompressing(*engine, tiers);
  ExpectOk(full->Prefill(OldRowsPrompt()));
  ExpectOk(session->Prefill(OldRowsPrompt()));
  double sum = 0;
  for (size_t i = kPromptTokens; i < kTextTokens; ++i) {
    ExpectOk(full->Decode(OldRowsText()[i]));
    ExpectOk(session->Decode(OldRowsText()[i]));
    sum += Distance(Logits(*full), Logits(*session));
  }
  return sum / (kTextTokens - kPromptTokens);
}

TEST(OldRowsInT2, LogitsAreThoseOfTheFullCacheUpToTheFormatsRounding) {
  const double int8 = MeanErrorOf(CompressedType::kInt8);
  const double int4 = MeanErrorOf(CompressedType::kInt4);
  const double int3 = MeanErrorOf(CompressedType::kInt3);
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, 0.02);
  EXPECT_LT(4 * int8, int4);
  EXPECT_LT(int4, 0.15);
  EXPECT_LT(1.5 * int4, int3);
  EXPECT_LT(int3, 0.5);
  if (OtherDevice() != nullptr) return;  // which holds no rows of int2
  const double int2 = MeanErrorOf(CompressedType::kInt2);
  EXPECT_LT(int3, int2);
  EXPECT_LT(int2, 0.7);
}

// The tokens of a turn that are read together have their rows in T2 decompressed; a single one
// attends to them as they are stored.
TEST(OldRowsInT2, ATurnReadTogetherAgreesWithOneReadTokenByToken) {
  const TierSetting tiers = Compressing(CompressedType::kInt8);
  auto engine = CompressingEngine(tiers);
  auto together = OpenCompressing(*engine, tiers);
  ExpectOk(together->Prefill(OldRowsPrompt().first(1040)));
  auto apart = together->Fork();
  ExpectOk(apart.status());
  // No page of the newest rows is completed in this turn.
  const auto turn = OldRowsPrompt().subspan(1040, 40);
  ExpectOk(together->Prefill(turn));
  for (const Token token : turn) ExpectOk((*apart)->Prefill(std::span(&token, 1)));
  EXPECT_NE(together->logits_hash(), (*apart)->logits_hash());
  // Attention to several tokens on a device adds values up in f16.
  EXPECT_LT(Distance(Logits(**apart), Logits(*together)), OtherDevice() == nullptr ? 0.002 : 0.01);
}

TEST(OldRowsInT2, AllPagesExceptTheFirstAndTheNewestAreCompressed) {
  const TierSetting tiers = Compressing(CompressedType::kInt8);
  auto engine = CompressingEngine(tiers);
  auto session = OpenCompressing(*engine, tiers);
  ExpectOk(session->Prefill(OldRowsPrompt()));
  const auto rows_in = [&](Tier tier) {
    return session->accounting().tiers[static_cast<int>(tier)].rows;
  };
  const int64_t streams = DeepModel()->shape().NumStreams();
  EXPECT_EQ(rows_in(Tier::kT2), (1088 - 64) * streams);
  EXPECT_EQ(rows_in(Tier::kT0), (64 + 1200 - 1088) * streams);
  DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
  EXPECT_EQ(rows_in(Tier::kT2), (1280 - 64) * streams);
  EXPECT_EQ(rows_in(Tier::kT1), 0);
}

TEST(OldRowsInT2, NeitherThreadsNorParkingNorForksNorFilesChangeABit) {
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4,
                                    CompressedType::kInt3, CompressedType::kInt2}) {
    SCOPED_TRACE(CompressedTypeName(type));
    if (type == CompressedType::kInt2 && OtherDevice() != nullptr) continue;
    const TierSetting tiers = Compressing(type, T1Place::kHost);
    const uint64_t expected = CompressedHashOf(Compressing(type));
    EXPECT_EQ(CompressedHashOf(Compressing(type), 1), expected);
    EXPECT_EQ(CompressedHashOf(tiers, 3), expected);
    auto engine = CompressingEngine(tiers);
    auto session = OpenCompressing(*engine, tiers);
    ExpectOk(session->Prefill(OldRowsPrompt()));
    DecodeOldRowsText(*session, kPromptTokens, 1250);
    auto fork = session->Fork();
    ExpectOk(fork.status());
    ExpectOk(session->Park());
    EXPECT_EQ(session->accounting().tiers[0].rows, 0);
    ExpectOk(session->SetT0Share(1));
    EXPECT_EQ(session->accounting().tiers[1].rows, 0);
    DecodeOldRowsText(*session, 1250, 1300);
    const TempFolder folder;
    const std::string file = folder.File("session");
    ExpectOk(SaveSession(*session, file));
    DecodeOldRowsText(*session, 1300, kTextTokens);
    EXPECT_EQ(session->logits_hash(), expected);
    DecodeOldRowsText(**fork, 1250, kTextTokens);
    EXPECT_EQ((*fork)->logits_hash(), expected);
    SessionOptions options;
    options.policy.tiers = tiers.shares;
    auto resumed = ResumeSession(*engine, file, options);
    ExpectOk(resumed.status());
    DecodeOldRowsText(*resumed->session, 1300, kTextTokens);
    EXPECT_EQ(resumed->session->logits_hash(), expected);
  }
}

TEST(OldRowsInT2, Int2IsRefusedWhereItsRowsCannotBe) {
  const auto narrow = RandomModel({.head_dim = 48});
  const auto engine = [&](CompressedType type) {
    return Engine::Create(narrow, {.threads = 1, .tiers = Compressing(type).engine}).status();
  };
  ExpectOk(engine(CompressedType::kInt3));
  const Status refused = engine(CompressedType::kInt2);
  EXPECT_EQ(refused.code(), StatusCode::kUnsupported);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("heads of a multiple of 64"));
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("int3 (q3)"));
}

// The metrics that a folder keeps are those that an engine computes; a damaged file is not used.
TEST(OldRowsInT2, KeyMetricsThatAreKeptGiveTheSameBits) {
  EBB_CPU_ONLY("devices hold no rows of int2");
  const TierSetting tiers = Compressing(CompressedType::kInt2);
  const uint64_t expected = CompressedHashOf(tiers);
  const TempFolder parent;
  const std::string folder = parent.File("metrics");
  std::filesystem::create_directory(folder);
  const auto hash = [&] {
    auto engine =
        MakeEngineOf(DeepModel(), {.threads = 2, .tiers = tiers.engine, .metrics_folder = folder});
    auto session = OpenCompressing(*engine, tiers);
    ExpectOk(session->Prefill(OldRowsPrompt()));
    DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
    return session->logits_hash();
  };
  EXPECT_EQ(hash(), expected);
  const std::filesystem::path kept = std::filesystem::directory_iterator(folder)->path();
  const auto size = std::filesystem::file_size(kept);
  const auto written = std::filesystem::last_write_time(kept);
  EXPECT_EQ(hash(), expected);
  EXPECT_EQ(std::filesystem::last_write_time(kept), written) << "it was read";
  std::filesystem::resize_file(kept, size - 4);
  EXPECT_EQ(hash(), expected);
  EXPECT_EQ(std::filesystem::file_size(kept), size) << "it was written again";
}

// A prompt that shares steps with other sessions is read in pieces of its chunks.
TEST(OldRowsInT2, PiecesOfAPromptInABatchHaveTheBitsOfWholeChunks) {
  EBB_CPU_ONLY("a device has other bits in a batch, and for a prompt in other pieces");
  const TierSetting tiers = Compressing(CompressedType::kInt8);
  const uint64_t expected = CompressedHashOf(tiers);
  auto engine = CompressingEngine(tiers);
  auto session = OpenCompressing(*engine, tiers);
  auto neighbour = OpenCompressing(*engine, tiers);
  ExpectOk(neighbour->Prefill(OldRowsPrompt().first(300)));
  ExpectOk(session->BeginPrompt({OldRowsPrompt().begin(), OldRowsPrompt().end()}));
  for (size_t at = 300; session->prompt_left() > 0; ++at) {
    std::vector<SessionStep> batch = {
        {.session = session.get(), .most_prompt_tokens = 97},
        {.session = neighbour.get(), .token = OldRowsText()[at]},
    };
    ExpectOk(engine->Step(batch));
  }
  DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
  EXPECT_EQ(session->logits_hash(), expected);
}

// The last chunk of a prompt has 128 tokens or more, so that its newest rows are as computed.
TEST(OldRowsInT2, TheNewestRowsOfAPromptAreNotCompressedWhereverItEnds) {
  const TierSetting tiers = Compressing(CompressedType::kInt8);
  auto engine = CompressingEngine(tiers);
  const int64_t streams = DeepModel()->shape().NumStreams();
  for (const size_t length : {513, 520, 600, 639, 640, 1024, 1025, 1100, 1151}) {
    auto session = OpenCompressing(*engine, tiers);
    ExpectOk(session->Prefill(OldRowsPrompt().first(length)));
    const int64_t in_t2 = session->accounting().tiers[2].rows / streams;
    EXPECT_EQ(64 + in_t2, static_cast<int64_t>((length - 65) / 64 * 64)) << length;
  }
}

TEST(OldRowsInT2, PromptsTakeWholeChunksOfEachOthersBeginnings) {
  EBB_CPU_ONLY("a device has other bits for a prompt in other pieces");
  const TierSetting tiers = Compressing(CompressedType::kInt4);
  auto engine = CompressingEngine(tiers);
  auto first = OpenCompressing(*engine, tiers);
  ExpectOk(first->Prefill(OldRowsPrompt()));
  DecodeOldRowsText(*first, kPromptTokens, 1250);
  std::vector<Token> prompt(OldRowsPrompt().begin(), OldRowsPrompt().end());
  prompt.back() = (prompt.back() + 1) % 100;
  const auto shareable = [&](size_t length) {
    return ExactPrefix(*first, std::span<const Token>(prompt).first(length));
  };
  EXPECT_EQ(shareable(1200), 1024u);
  EXPECT_EQ(shareable(1152), 1024u);
  EXPECT_EQ(shareable(1100), 512u) << "its second chunk is shorter";
  EXPECT_EQ(shareable(600), 0u);
  auto alone = OpenCompressing(*engine, tiers);
  ExpectOk(alone->Prefill(prompt));
  auto shared = OpenCompressing(*engine, tiers);
  ExpectOk(BeginPromptFrom(first.get(), prompt, shared.get()).status());
  EXPECT_EQ(shared->prompt_left(), prompt.size() - 1024);
  while (shared->prompt_left() > 0) {
    std::vector<SessionStep> step = {{.session = shared.get(), .most_prompt_tokens = 60}};
    ExpectOk(engine->Step(step));
  }
  for (Session* session : {alone.get(), shared.get()}) {
    DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
  }
  EXPECT_EQ(shared->logits_hash(), alone->logits_hash());
}

TEST(OldRowsInT2, ATurnAfterARollBackIsRead) {
  const TierSetting tiers = Compressing(CompressedType::kInt4);
  auto engine = CompressingEngine(tiers);
  auto session = OpenCompressing(*engine, tiers);
  ExpectOk(session->Prefill(OldRowsPrompt()));
  ExpectOk(session->TruncateTo(kPromptTokens - 300));
  ExpectOk(session->Prefill(std::span(OldRowsText()).subspan(kPromptTokens, 100)));
  DecodeOldRowsText(*session, 1300, kTextTokens);
  EXPECT_TRUE(std::ranges::all_of(Logits(*session), [](float x) { return std::isfinite(x); }));
}

TEST(OldRowsInT2, LosslessDraftsMayUseThem) {
  EBB_CPU_ONLY("a device verifies several tokens up to rounding");
  const TierSetting tiers = Compressing(CompressedType::kInt4);
  auto engine = CompressingEngine(tiers);
  SessionOptions options;
  options.policy.tiers = tiers.shares;
  options.lossless.emplace();
  auto session = engine->OpenSession(options);
  ExpectOk(session.status());
  auto full = Open(*engine, PolicySpec());
  for (Session* each : {session->get(), full.get()}) {
    ExpectOk(each->Prefill(OldRowsPrompt()));
    DecodeOldRowsText(*each, kPromptTokens, 1250);
  }
  EXPECT_EQ((*session)->logits_hash(), full->logits_hash());
}

TEST(OldRowsInT2, OptionsWithoutEffectAreRefusedByName) {
  TierSetting tiers = Compressing(CompressedType::kInt8);
  const auto refusal = [&](const SessionOptions& options) {
    const auto session = CompressingEngine(tiers)->OpenSession(options);
    EXPECT_FALSE(session.ok());
    return session.ok() ? std::string() : session.status().ToString();
  };
  SessionOptions options;
  options.policy.tiers = tiers.shares;
  options.policy.name = "attention";
  EXPECT_THAT(refusal(options), HasSubstr("policy \"attention\" needs a budget"));
  options.policy.name = "full";
  options.policy.window = 64;
  EXPECT_THAT(refusal(options), HasSubstr("policy \"full\" takes no window"));
  options.policy.window.reset();
  options.policy.tiers->t2_newest = 0;
  EXPECT_THAT(refusal(options), HasSubstr("newest=0: expected at least 0 and 1"));
  options.policy.tiers->t2_newest = 65;
  tiers.engine.t0_cap_bytes = 4 << 20;
  EXPECT_THAT(refusal(options),
              HasSubstr("a cap on T0 cannot be combined with a compressed cache of all old rows"));
  options.policy.tiers->evict_beyond_caps = true;
  EXPECT_THAT(refusal(options),
              HasSubstr("a compressed cache of all old rows cannot be combined with evicting what "
                        "the caps do not hold"));
  options.policy.tiers->evict_beyond_caps = false;
  tiers.engine.t0_cap_bytes = 0;
  options.past_context = PastContext::kReRotate;
  EXPECT_THAT(refusal(options), HasSubstr("keys in T1 and T2 cannot be re-rotated"));
}

TEST(OldRows, ACapLimitsT0AndT2Together) {
  const TierSetting tiers = Compressing(CompressedType::kInt8);
  const uint64_t expected = CompressedHashOf(tiers);
  constexpr uint64_t kCap = uint64_t{8} << 20;
  auto engine =
      MakeEngineOf(DeepModel(), {.threads = 2, .kv_cap_bytes = kCap, .tiers = tiers.engine});
  auto session = OpenCompressing(*engine, tiers);
  ExpectOk(session->Prefill(OldRowsPrompt()));
  DecodeOldRowsText(*session, kPromptTokens, kTextTokens);
  EXPECT_EQ(session->logits_hash(), expected);
  const auto mapped = [&] {
    return engine->arena_accounting(Tier::kT0).reserved_bytes +
           engine->arena_accounting(Tier::kT2).reserved_bytes;
  };
  // Others fill the cache; none of them takes more than the cap leaves.
  std::vector<std::unique_ptr<Session>> others;
  Status status;
  while (status.ok() && others.size() < 20) {
    others.push_back(OpenCompressing(*engine, tiers));
    const StepOutcome read = others.back()->Prefill(OldRowsPrompt());
    status = read.status;
    EXPECT_LE(mapped(), kCap);
  }
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_GT(others.size(), 1u);
  // Memory that they give back serves the first one.
  others.clear();
  DecodeOldRowsText(*session, kTextTokens, kTextTokens + 100);
}

TEST(OldRows, ACapIsRefusedBesideAT1) {
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    const auto engine = Engine::Create(
        DeepModel(),
        {.kv_cap_bytes = 8 << 20, .tiers = Compressing(CompressedType::kInt8, t1).engine});
    EXPECT_THAT(engine.status().ToString(), HasSubstr("kv_cap_bytes: cannot be combined"));
  }
}

}  // namespace
}  // namespace ebb
