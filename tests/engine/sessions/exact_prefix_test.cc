// A session that takes the beginning of its prompt from another one has the bits of reading it, and
// both hold its pages once.
#include <ostream>
#include <random>

#include "ebb/generate.h"
#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_cases.h"
#include "tests/engine/sessions/session_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it needs steps of several tokens with the bits of steps of one");

constexpr int kDecoded = 24;

// Six query heads of one kv head: few tiles, so that long prompts are cut into parts of rows.
std::shared_ptr<const Model> ModelOf(const std::string& weight_type) {
  RandomGgufOptions shape =
      weight_type.ends_with("_K") ? SuperBlockModelOptions() : SmallModelOptions();
  shape.weight_type = weight_type;
  if (weight_type == "q4_K") shape.value_type = "q6_K";  // as Q4_K_M has them
  shape.context = 8192;
  return RandomModel(shape);
}

// `num_common` tokens that all prompts begin with, then others.
std::vector<Token> PromptOf(size_t num_common, size_t num_tokens, uint64_t seed) {
  std::vector<Token> prompt = SomeTokens(num_common, 1);
  const std::vector<Token> rest = SomeTokens(num_tokens - num_common, 100 + seed);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  // The first of them differs, whatever was drawn.
  if (!rest.empty()) prompt[num_common] = static_cast<Token>(300 + seed % 50);
  return prompt;
}

void ReadOn(Engine& engine, Session* session, size_t most = 0) {
  while (session->prompt_left() > 0) {
    SessionStep part[] = {{.session = session, .most_prompt_tokens = most}};
    ExpectOk(engine.Step(part));
  }
}

uint64_t HashOfReading(Engine& engine, const SessionOptions& options,
                       const std::vector<Token>& prompt) {
  const auto session = Open(engine, options);
  ExpectOk(session->Prefill(prompt));
  for (const Token token : SomeTokens(kDecoded, 9)) ExpectOk(session->Decode(token));
  return session->logits_hash();
}

size_t ArenaBytes(const Engine& engine) {
  size_t bytes = 0;
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    bytes += engine.arena_accounting(tier).used_bytes;
  }
  return bytes;
}

size_t Take(Session* from, const std::vector<Token>& prompt, Session* session) {
  const auto num_taken = BeginPromptFrom(from, prompt, session);
  EXPECT_TRUE(num_taken.ok()) << num_taken.status().ToString();
  return num_taken.ok() ? *num_taken : 0;
}

// Returns how many tokens were taken.
size_t ExpectBitsOfReading(Engine& engine, const SessionOptions& options, Session* from,
                           const std::vector<Token>& prompt, size_t piece = 100) {
  const auto session = Open(engine, options);
  const size_t num_taken = ExactPrefix(*from, prompt);
  EXPECT_EQ(Take(from, prompt, session.get()), num_taken);
  EXPECT_EQ(session->prompt_left(), prompt.size() - num_taken);
  EXPECT_EQ(session->next_position(), static_cast<Position>(num_taken));
  ReadOn(engine, session.get(), piece);
  for (const Token token : SomeTokens(kDecoded, 9)) ExpectOk(session->Decode(token));
  EXPECT_EQ(session->logits_hash(), HashOfReading(engine, options, prompt))
      << num_taken << " of " << prompt.size() << " tokens from " << from->next_position();
  ExpectOk(Internals::SequenceOf(*session).cache().Validate());
  ExpectOk(Internals::SequenceOf(*from).cache().Validate());
  return num_taken;
}

class ExactPrefixTest : public ::testing::TestWithParam<const char*> {};

// Lengths on both sides of chunks (512), of folds (12), of parts of rows (from 2,048 old ones on).
TEST_P(ExactPrefixTest, WhateverTheLengthsTheBitsAreThoseOfReading) {
  const auto engine = MakeEngineOf(ModelOf(GetParam()), {.threads = 2});
  struct Lengths {
    size_t of_source, of_prompt, common;
    size_t taken;  // at least
  };
  const Lengths cases[] = {
      {40, 60, 30, 30},         {40, 60, 40, 40},        {60, 40, 40, 38},
      {600, 600, 600, 598},     {600, 513, 512, 512},    {600, 514, 513, 512},
      {520, 900, 520, 512},     {530, 900, 530, 530},    {1024, 1500, 1024, 1024},
      {2700, 2700, 2650, 2650}, {2700, 2590, 2580, 2560}};
  for (const Lengths& lengths : cases) {
    const auto from = Open(*engine);
    ExpectOk(from->Prefill(PromptOf(lengths.common, lengths.of_source, 2)));
    for (const Token token : SomeTokens(70, 8)) ExpectOk(from->Decode(token));
    const auto prompt = PromptOf(lengths.common, lengths.of_prompt, 3);
    const size_t taken = ExpectBitsOfReading(*engine, {}, from.get(), prompt);
    EXPECT_GE(taken, lengths.taken) << lengths.of_source << " " << lengths.of_prompt;
    EXPECT_LE(taken, std::min(lengths.common, prompt.size() - 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Weights, ExactPrefixTest, ::testing::Values("f32", "q4_1", "q4_K"));

struct SharingCase {
  std::string name;
  TieredPolicy policy;
};
std::ostream& operator<<(std::ostream& out, const SharingCase& c) { return out << c.name; }

std::vector<SharingCase> SharingCases() {
  std::vector<SharingCase> cases = {{"full", SmallPolicy("full", "")},
                                    {"attention", SmallPolicy("attention", "25%")},
                                    {"random", SmallPolicy("random", "25%")},
                                    {"tova", SmallPolicy("tova", "1000")},
                                    {"raas", SmallPolicy("raas", "900")}};
  for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
    const std::string name = place == T1Place::kHost ? "host" : "file";
    cases.push_back({"t1_" + name, Tiered({.engine = {.t1 = place}, .shares = {.t0_share = 0.4}})});
    cases.push_back(
        {"t2_" + name, Tiered({.engine = {.t1 = place, .t2_type = CompressedType::kInt8},
                               .shares = {.t0_share = 0.4, .t2_share = 0.4, .evict_share = 0.1}})});
  }
  for (const Granularity granularity : {Granularity::kLayer, Granularity::kHead}) {
    SharingCase one = {"t2_" + std::string(GranularityName(granularity)), cases.back().policy};
    one.policy.granularity = granularity;
    cases.push_back(one);
  }
  return cases;
}

class ExactPrefixPolicyTest : public ::testing::TestWithParam<SharingCase> {};

TEST_P(ExactPrefixPolicyTest, PoliciesThatLetPromptsBeShareThem) {
  const SessionOptions options = {.policy = GetParam().policy};
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().policy.engine));
  const auto from = Open(*engine, options);
  ExpectOk(from->BeginPrompt(PromptOf(400, 600, 2)));
  SessionStep part[] = {{.session = from.get(), .most_prompt_tokens = 300}};
  ExpectOk(engine->Step(part));
  const auto prompt = PromptOf(400, 700, 3);
  // While it is read still, decodes, rests, and is rolled back.
  EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), prompt), 300u);
  ReadOn(*engine, from.get());
  for (const Token token : SomeTokens(90, 8)) ExpectOk(from->Decode(token));
  EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), prompt), 400u);
  if (options.policy.tiers.has_value()) {
    ExpectOk(from->Park());
    EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), prompt), 400u);
  }
  ExpectOk(from->TruncateTo(350));
  EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), prompt), 350u);
  // What is read behind a roll-back began elsewhere.
  ExpectOk(from->Prefill(std::span(prompt).subspan(350, 30)));
  EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), prompt), 350u);
}

TEST_P(ExactPrefixPolicyTest, WhoGaveRowsGoesOnAsIfAlone) {
  const SessionOptions options = {.policy = GetParam().policy};
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().policy.engine));
  const auto prompt = PromptOf(0, 500, 2);
  const auto from = Open(*engine, options);
  ExpectOk(from->Prefill(prompt));
  std::vector<std::unique_ptr<Session>> takers;
  for (const Token token : SomeTokens(kDecoded, 9)) {
    ExpectOk(from->Decode(token));
    takers.push_back(Open(*engine, options));
    std::vector<Token> other = prompt;
    const size_t num_common = 300 + takers.size();
    other[num_common] = other[num_common] == 7 ? 8 : 7;
    EXPECT_EQ(Take(from.get(), other, takers.back().get()), num_common);
    ReadOn(*engine, takers.back().get());
    ExpectOk(takers.back()->Decode(5));
    if (takers.size() % 3 == 0) takers.erase(takers.begin());
  }
  EXPECT_EQ(from->logits_hash(), HashOfReading(*engine, options, prompt));
  takers.clear();
  EXPECT_GT(ArenaBytes(*engine), 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, ExactPrefixPolicyTest, ::testing::ValuesIn(SharingCases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(ExactPrefixPolicyTest, ASessionFromAFileGivesItsFirstPrompt) {
  const SessionOptions options = {.policy = GetParam().policy};
  const TempFolder folder;
  const auto prompt = PromptOf(400, 700, 3);
  {
    const auto engine = MakeEngine(EngineOptionsFor(GetParam().policy.engine));
    const auto from = Open(*engine, options);
    ExpectOk(from->Prefill(PromptOf(400, 600, 2)));
    ExpectOk(SaveSession(*from, folder.File("whole"), "", Durability::kUnsynced));
    for (const Token token : SomeTokens(90, 8)) ExpectOk(from->Decode(token));
    ExpectOk(SaveSession(*from, folder.File("later")));
    ExpectOk(from->TruncateTo(350));
    ExpectOk(SaveSession(*from, folder.File("rolled_back")));
  }
  const auto engine = MakeEngine(EngineOptionsFor(GetParam().policy.engine));
  for (const auto& [name, num_taken] :
       {std::pair("whole", 400u), std::pair("later", 400u), std::pair("rolled_back", 350u)}) {
    auto resumed = ResumeSession(*engine, folder.File(name), options);
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    EXPECT_EQ(ExpectBitsOfReading(*engine, options, resumed->session.get(), prompt), num_taken)
        << name;
  }
}

TEST(ExactPrefix, EnginesWhoseRowsDifferAreDescribedApart) {
  const auto model = ModelOf("f32"), other_model = ModelOf("q4_1");
  const std::vector<std::string> descriptions = {
      DescribeRows(*MakeEngineOf(model, {.threads = 1})),
      DescribeRows(*MakeEngineOf(model, {.threads = 1, .kv_type = RowType::kF32})),
      DescribeRows(*MakeEngineOf(model, {.threads = 1, .prefill_chunk = 256})),
      DescribeRows(
          *MakeEngineOf(model, {.threads = 1, .attention = EngineOptions::Attention::kReference})),
      DescribeRows(*MakeEngineOf(other_model, {.threads = 1}))};
  for (size_t i = 0; i < descriptions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(descriptions[i], descriptions[j]) << i << " " << j;
  }
  EXPECT_EQ(DescribeRows(*MakeEngineOf(model, {.threads = 2, .kv_cap_bytes = 64 << 20})),
            descriptions[0]);
}

TEST(ExactPrefix, PagesOfTheBeginningAreThereOnce) {
  const auto engine = MakeEngine();
  const auto from = Open(*engine);
  const auto prompt = PromptOf(1000, 1200, 2);
  ExpectOk(from->Prefill(prompt));
  const size_t before = engine->arena_accounting().used_bytes;
  const size_t page = before / 19;  // of each stream: 1,200 rows fill 18.75 pages
  const auto session = Open(*engine);
  EXPECT_EQ(Take(from.get(), PromptOf(1000, 1100, 3), session.get()), 1000u);
  EXPECT_EQ(engine->arena_accounting().used_bytes, before + page);  // the one that is not full
  const TierAccounting t0 = session->accounting().tiers[0];
  EXPECT_EQ(t0.page_bytes, 16 * page);
  EXPECT_EQ(session->page_bytes(Tier::kT0), 16 * page);
  EXPECT_EQ(session->page_bytes(Tier::kT1), 0u);
  EXPECT_EQ(t0.shared_page_bytes, 15 * page);
  EXPECT_EQ(t0.fair_page_bytes, page + 15 * page / 2);
  EXPECT_EQ(from->accounting().tiers[0].fair_page_bytes, 4 * page + 15 * page / 2);
}

TEST(ExactPrefix, WhatCannotBeSharedExactlyIsNot) {
  const auto engine = MakeEngine();
  const std::vector<Token> prompt = SomeTokens(200);
  for (const PolicySpec& policy :
       {SmallPolicy("h2o", "64"), SmallPolicy("quest", "48"), SmallPolicy("vatp", "64")}) {
    const auto from = Open(*engine, policy);
    ExpectOk(from->Prefill(prompt));
    EXPECT_EQ(ExactPrefix(*from, prompt), 0u) << policy.name;
  }
  // Of rows that went while the prompt was read only those before the first of them count.
  const auto streaming = Open(*engine, SmallPolicy("streaming", "64"));
  ExpectOk(streaming->Prefill(prompt));
  EXPECT_EQ(ExactPrefix(*streaming, prompt), 4u);
  SessionOptions lossless;
  lossless.policy = SmallPolicy("streaming", "32");
  lossless.lossless.emplace();
  SessionOptions rotating = {.policy = SmallPolicy("streaming", "128"),
                             .context = 256,
                             .past_context = PastContext::kReRotate};
  for (const SessionOptions& options : {lossless, rotating}) {
    const auto from = Open(*engine, options);
    ExpectOk(from->Prefill(std::span(prompt).first(100)));
    EXPECT_EQ(ExactPrefix(*from, prompt), 0u);
  }
  // Tokens that were generated, and prompts behind the first, were read in other cuts.
  const auto from = Open(*engine);
  ExpectOk(from->Prefill(std::span(prompt).first(50)));
  for (const Token token : std::span(prompt).subspan(50, 20)) ExpectOk(from->Decode(token));
  ExpectOk(from->Prefill(std::span(prompt).subspan(70, 30)));
  EXPECT_EQ(ExactPrefix(*from, prompt), 50u);
  EXPECT_EQ(ExactPrefix(*from, {}), 0u);
}

TEST(ExactPrefix, APromptThatWasGivenUpEndsWhereTokensAreGenerated) {
  const auto engine = MakeEngine();
  const std::vector<Token> prompt = SomeTokens(900);
  const auto from = Open(*engine);
  std::atomic<bool> cancel = false;
  const PrefillOptions options = {.cancel = &cancel, .progress = [&](size_t) { cancel = true; }};
  EXPECT_EQ(from->Prefill(prompt, options).status.code(), StatusCode::kCancelled);
  ASSERT_EQ(from->next_position(), 512);
  for (const Token token : std::span(prompt).subspan(512, 20)) ExpectOk(from->Decode(token));
  EXPECT_EQ(ExactPrefix(*from, prompt), 512u);
}

TEST(ExactPrefix, WhoIsNotAskedRightTakesNothing) {
  const auto engine = MakeEngine(), other_engine = MakeEngine();
  const std::vector<Token> prompt = SomeTokens(100);
  const auto from = Open(*engine), elsewhere = Open(*other_engine), full = Open(*engine);
  const auto otherwise = Open(*engine, SmallPolicy("attention", "25%"));
  ExpectOk(from->Prefill(prompt));
  ExpectOk(full->Prefill(prompt));
  for (Session* session : {elsewhere.get(), full.get(), otherwise.get()}) {
    EXPECT_EQ(
        BeginPromptFrom(from.get(), prompt, session).status().message(),
        "a session takes rows of a prompt only if it has no tokens, and engine, policy and options "
        "equal those of the session that has them");
  }
  const auto session = Open(*engine);
  EXPECT_EQ(BeginPromptFrom(from.get(), {5, 100000}, session.get()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(session->next_position(), 0);
  EXPECT_EQ(Take(from.get(), prompt, session.get()), 98u);
  EXPECT_EQ(session->prompt_left(), 2u);
}

TEST(ExactPrefix, PoliciesOfTheCallersOwnShareNothing) {
  const auto engine = MakeEngine();
  const std::vector<Token> prompt = SomeTokens(100);
  SessionOptions own;
  own.make_policy = [](const PolicyContext& context) { return MakePolicy({}, context); };
  const auto from = Open(*engine, own), like = Open(*engine, own), built_in = Open(*engine);
  ExpectOk(from->Prefill(prompt));
  for (Session* session : {like.get(), built_in.get()}) {
    EXPECT_EQ(BeginPromptFrom(from.get(), prompt, session).status().code(),
              StatusCode::kInvalidArgument);
  }
}

// Rows of T1 would come to a session that turns keys, which works in T0 alone.
TEST(ExactPrefix, SessionsOfOneNameWhoseTiersOrTurnsDifferShareNothing) {
  const SessionOptions tiered = {.policy = Tiered({.shares = {.t0_share = 0.4}})};
  const SessionOptions plain = {.policy = SmallPolicy("attention", "25%")};
  SessionOptions turning = plain;
  turning.context = 256;
  turning.past_context = PastContext::kReRotate;
  const auto engine = MakeEngine(EngineOptionsFor(EngineTiers{.t1 = T1Place::kHost}));
  const std::vector<Token> prompt = SomeTokens(100);
  for (const SessionOptions* options : {&tiered, &plain}) {
    const auto from = Open(*engine, *options), session = Open(*engine, turning);
    ExpectOk(from->Prefill(prompt));
    EXPECT_EQ(BeginPromptFrom(from.get(), prompt, session.get()).status().code(),
              StatusCode::kInvalidArgument);
  }
  const auto from = Open(*engine, tiered), session = Open(*engine, plain);
  ExpectOk(from->Prefill(prompt));
  EXPECT_EQ(BeginPromptFrom(from.get(), prompt, session.get()).status().code(),
            StatusCode::kInvalidArgument);
}

// Rows that went while a prompt was read change those behind them.
TEST(ExactPrefix, SessionsWhosePlacementsDifferShareNothing) {
  const auto tiered = [](double t0_share, double evict_share) {
    return Tiered({.shares = {.t0_share = t0_share, .evict_share = evict_share}});
  };
  const auto with = [](PolicySpec policy, int window, int interval) {
    policy.window = window;
    policy.interval = interval;
    return policy;
  };
  const PolicySpec attention = SmallPolicy("attention", "25%");
  const std::pair<PolicySpec, PolicySpec> cases[] = {
      {attention, SmallPolicy("attention", "50%")},
      {attention, with(attention, 8, 8)},
      {attention, with(attention, 16, 4)},
      {SmallPolicy("streaming", "128"), SmallPolicy("streaming", "300")},
      {SmallPolicy("tova", "100"), SmallPolicy("tova", "1000")},
      {tiered(0.4, 0), tiered(0.4, 0.2)},
      {tiered(0.4, 0), tiered(0.2, 0)}};
  const auto engine = MakeEngine(EngineOptionsFor(EngineTiers{.t1 = T1Place::kHost}));
  const std::vector<Token> prompt = SomeTokens(100);
  for (const auto& [one, other] : cases) {
    const auto from = Open(*engine, one), like = Open(*engine, one), unlike = Open(*engine, other);
    ExpectOk(from->Prefill(prompt));
    EXPECT_EQ(
        BeginPromptFrom(from.get(), prompt, unlike.get()).status().message(),
        "a session takes rows of a prompt only if it has no tokens, and engine, policy and options "
        "equal those of the session that has them")
        << one.name;
    EXPECT_EQ(Take(from.get(), prompt, like.get()), 98u) << one.name;
  }
}

TEST(ExactPrefix, AShareOfT0ThatChangedSinceIsNoOtherKind) {
  const SessionOptions options = {.policy = Tiered({.shares = {.t0_share = 0.4}})};
  const auto engine = MakeEngine(EngineOptionsFor(EngineTiers{.t1 = T1Place::kHost}));
  const auto from = Open(*engine, options);
  ExpectOk(from->Prefill(PromptOf(200, 300, 2)));
  ExpectOk(from->SetT0Share(0.9));
  EXPECT_EQ(ExpectBitsOfReading(*engine, options, from.get(), PromptOf(200, 280, 3)), 200u);
}

// The stamps of lazy_eviction count from the first step of a session, whatever was forgotten since.
TEST(ExactPrefix, ASessionThatForgotItsTextHasTheBitsOfReadingToo) {
  SessionOptions options = {.policy = SmallPolicy("lazy_eviction", "160")};
  options.policy.interval = 8;
  const auto engine = MakeEngine();
  const auto prompt = PromptOf(140, 150, 3);
  const auto from = Open(*engine, options);
  ExpectOk(from->Prefill(PromptOf(140, 200, 2)));
  const auto reads = Open(*engine, options), takes = Open(*engine, options);
  for (Session* session : {reads.get(), takes.get()}) {
    ExpectOk(session->Prefill(SomeTokens(20, 4)));
    for (const Token token : SomeTokens(50, 5)) ExpectOk(session->Decode(token));
    ExpectOk(session->TruncateTo(0));
  }
  ExpectOk(reads->Prefill(prompt));
  EXPECT_EQ(Take(from.get(), prompt, takes.get()), 140u);
  ReadOn(*engine, takes.get());
  for (Session* session : {reads.get(), takes.get()}) {
    for (const Token token : SomeTokens(40, 9)) ExpectOk(session->Decode(token));
    EXPECT_GT(session->accounting().rows_evicted, 0);
  }
  EXPECT_EQ(takes->logits_hash(), reads->logits_hash());
}

TEST(ExactPrefix, ATextLongerThanAWindowIsSharedAsAWhole) {
  EBB_CPU_ONLY("a device keeps no rows behind windows");
  RandomGgufOptions shape = SmallModelOptions();
  shape.family = "gemma3";
  shape.sliding_window = 64;
  const auto engine = MakeEngineOf(RandomModel(shape));
  const auto from = Open(*engine), longer = Open(*engine);
  ExpectOk(from->Prefill(SomeTokens(60)));
  ExpectOk(longer->Prefill(SomeTokens(200)));
  std::vector<Token> other = SomeTokens(300);
  other[150] = (other[150] + 1) % 100;
  EXPECT_EQ(ExactPrefix(*longer, other), 0u);
  EXPECT_EQ(ExpectBitsOfReading(*engine, {}, longer.get(), SomeTokens(300)), 200u);
  EXPECT_EQ(ExpectBitsOfReading(*engine, {}, from.get(), SomeTokens(300)), 60u);
}

TEST(ExactPrefix, WithoutRoomForTheCopiesItIsRefusedAndTheOtherGoesOn) {
  const auto engine = MakeEngine({.threads = 1, .kv_cap_bytes = size_t{2} << 20});
  const size_t row_bytes = 2 * 2 * 2 * 64 * 2;  // layers, heads, key and value of 64 f16
  const std::vector<Token> prompt = SomeTokens((size_t{2} << 20) / row_bytes);
  const auto from = Open(*engine);
  ExpectOk(from->Prefill(prompt));
  auto session = Open(*engine);
  EXPECT_EQ(BeginPromptFrom(from.get(), prompt, session.get()).status().code(),
            StatusCode::kT0Full);
  session.reset();
  EXPECT_EQ(from->accounting().tiers[0].shared_page_bytes, 0u);
  ExpectOk(from->TruncateTo(500));
  ExpectOk(from->Decode(1));
}

// Random prompts of a few stems, from whoever has the most of each, in steps together, against runs
// alone.
TEST(ExactPrefix, RandomFamiliesOfPromptsGiveTheBitsOfRunningAloneAndAllBytesBack) {
  for (const SharingCase& one : SharingCases()) {
    const SessionOptions options = {.policy = one.policy};
    const auto engine = MakeEngine(EngineOptionsFor(one.policy.engine));
    std::mt19937 random(11);
    struct Living {
      std::unique_ptr<Session> session;
      std::vector<Token> prompt;
      size_t num_decoded = 0;
    };
    std::vector<Living> living;
    const std::vector<Token> decoded = SomeTokens(kDecoded, 9);
    size_t num_taken = 0;
    for (int round = 0; round < 60; ++round) {
      if (living.size() < 5 && random() % 2 == 0) {
        const size_t common = 20 + random() % 600;
        Living newest = {.session = Open(*engine, options),
                         .prompt = PromptOf(common, common + 1 + random() % 80, random() % 3)};
        Session* best = nullptr;
        size_t most = 0;
        for (const Living& other : living) {
          const size_t exact = ExactPrefix(*other.session, newest.prompt);
          if (exact > most) best = other.session.get(), most = exact;
        }
        num_taken += most;
        if (best == nullptr) {
          ExpectOk(newest.session->BeginPrompt(newest.prompt));
        } else {
          EXPECT_EQ(Take(best, newest.prompt, newest.session.get()), most);
        }
        living.push_back(std::move(newest));
      }
      std::vector<SessionStep> batch;
      for (Living& each : living) {
        if (random() % 4 == 0) continue;
        const bool reads = each.session->prompt_left() > 0;
        if (!reads && each.num_decoded == decoded.size()) continue;
        batch.push_back({.session = each.session.get()});
        if (reads) batch.back().most_prompt_tokens = 2 + random() % 200;
        if (!reads) batch.back().token = decoded[each.num_decoded++];
      }
      if (!batch.empty()) ExpectOk(engine->Step(batch));
      std::erase_if(living, [&](const Living& each) {
        ExpectOk(Internals::SequenceOf(*each.session).cache().Validate());
        if (each.num_decoded < decoded.size()) return false;
        EXPECT_EQ(each.session->logits_hash(), HashOfReading(*engine, options, each.prompt))
            << one.name << " round " << round;
        return random() % 2 == 0;
      });
    }
    EXPECT_GT(num_taken, 0u) << one.name;
    living.clear();
    EXPECT_EQ(ArenaBytes(*engine), 0u) << one.name;
  }
}

}  // namespace
}  // namespace ebb
