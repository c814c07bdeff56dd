// Steps of several sessions: generated tokens and pieces of prompts in any mix.
#include <algorithm>
#include <random>

#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"

namespace ebb {
namespace {

constexpr size_t kLongPromptTokens = 4000;
constexpr int kDecoders = 7;

std::shared_ptr<const Model> ModelOf(const std::string& weight_type) {
  RandomGgufOptions shape = SmallModelOptions();
  shape.weight_type = weight_type;
  shape.context = 8192;
  return RandomModel(shape);
}

// Q4_K with values in Q6_K, as Q4_K_M has them. Rows are whole super-blocks of 256 weights.
std::shared_ptr<const Model> ModelOfQ4KM() {
  RandomGgufOptions shape = SuperBlockModelOptions();
  shape.weight_type = "q4_K";
  shape.value_type = "q6_K";
  return RandomModel(shape);
}

// What a session is to take, and what comes of it alone.
struct Part {
  SessionOptions options;
  std::vector<Token> prompt;
  std::vector<Token> generated;
  uint64_t expected = 0;
};

void RunAlone(Engine& engine, Part* part) {
  auto session = Open(engine, part->options);
  ExpectOk(session->Prefill(part->prompt));
  for (const Token token : part->generated) ExpectOk(session->Decode(token));
  part->expected = session->logits_hash();
}

// A prompt in pieces of changing length beside decoding sessions of changing number.
void ExpectMixedBits(const std::shared_ptr<const Model>& model, const EngineOptions& options,
                     std::vector<Part> parts) {
  auto engine = MakeEngineOf(model, options);
  for (Part& part : parts) RunAlone(*engine, &part);
  std::vector<std::unique_ptr<Session>> sessions;
  for (const Part& part : parts) sessions.push_back(Open(*engine, part.options));
  for (size_t i = 1; i < parts.size(); ++i) ExpectOk(sessions[i]->Prefill(parts[i].prompt));
  ExpectOk(sessions[0]->BeginPrompt(parts[0].prompt));
  std::mt19937 random(5);
  std::vector<size_t> next(parts.size(), 0);
  int mixed_steps = 0;
  for (int step = 0;; ++step) {
    std::vector<SessionStep> batch;
    if (sessions[0]->prompt_left() > 0) {
      batch.push_back({.session = sessions[0].get(), .most_prompt_tokens = random() % 300});
    }
    const bool reads = !batch.empty();
    for (size_t i = 0; i < parts.size(); ++i) {
      if ((i == 0 && reads) || next[i] == parts[i].generated.size()) continue;
      if (reads && random() % 3 == 0) continue;
      batch.push_back({.session = sessions[i].get(), .token = parts[i].generated[next[i]++]});
    }
    if (batch.empty()) break;
    if (reads && batch.size() > 1) ++mixed_steps;
    ExpectOk(engine->Step(batch));
  }
  EXPECT_GE(mixed_steps, 3);
  for (size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(sessions[i]->logits_hash(), parts[i].expected) << i;
  }
}

std::vector<Part> FullParts() {
  std::vector<Part> parts;
  for (int i = 0; i <= kDecoders; ++i) {
    parts.push_back({.prompt = SomeTokens(i == 0 ? kLongPromptTokens : 20 + 37 * i, 50 + i),
                     .generated = SomeTokens(i == 0 ? 10 : 40, 90 + i)});
  }
  return parts;
}

TEST(Batch, AMixedStepGivesEachSessionItsBitsWithF32) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  ExpectMixedBits(ModelOf("f32"), {.threads = 2}, FullParts());
}

TEST(Batch, AMixedStepGivesEachSessionItsBitsWithQ41) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  ExpectMixedBits(ModelOf("q4_1"), {.threads = 2}, FullParts());
}

TEST(Batch, AMixedStepGivesEachSessionItsBitsWithQ4KM) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  ExpectMixedBits(ModelOfQ4KM(), {.threads = 2}, FullParts());
}

TEST(Batch, AMixedStepGivesEachSessionItsBitsWithQ5K) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  RandomGgufOptions shape = SuperBlockModelOptions();
  shape.weight_type = "q5_K";
  ExpectMixedBits(RandomModel(shape), {.threads = 2}, FullParts());
}

// The first one's prompt is long, and read in pieces: what it evicts there does not depend on them.
class BatchOfPolicies : public testing::TestWithParam<size_t> {};

TEST_P(BatchOfPolicies, DecideInAMixedStepAsTheyDoAlone) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  std::vector<Part> parts;
  std::vector<PolicySpec> policies = {
      SmallPolicy("attention", "1000"), SmallPolicy("h2o", "64"),
      SmallPolicy("streaming", "64"),   SmallPolicy("tova", "64"),
      SmallPolicy("quest", "48"),       SmallPolicy("attention", "25%")};
  std::ranges::rotate(policies, policies.begin() + static_cast<ptrdiff_t>(GetParam()));
  for (size_t i = 0; i < policies.size(); ++i) {
    Part part = {.prompt = SomeTokens(i == 0 ? 900 : 150 + 20 * i, 50 + i),
                 .generated = SomeTokens(30, 90 + i)};
    part.options.policy = policies[i];
    parts.push_back(part);
  }
  ExpectMixedBits(ModelOf("q4_1"), {.threads = 2, .prefill_chunk = 128}, parts);
}

INSTANTIATE_TEST_SUITE_P(FirstOf, BatchOfPolicies, testing::Range<size_t>(0, 6));

TEST(Batch, TiersMoveRowsInAMixedStepAsTheyDoAlone) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                       .shares = {.t0_share = 0.3, .t2_share = 0.2, .evict_share = 0.1}};
  std::vector<Part> parts;
  for (int i = 0; i < 4; ++i) {
    Part part = {.prompt = SomeTokens(i == 0 ? 700 : 150, 50 + i),
                 .generated = SomeTokens(60, 90 + i)};
    part.options.policy = {.name = "attention", .window = 16, .interval = 8, .tiers = tiers.shares};
    parts.push_back(part);
  }
  ExpectMixedBits(ModelOf("q4_1"), {.threads = 2, .tiers = tiers.engine}, parts);
}

TEST(Batch, ALosslessSessionDecodesBesideOthers) {
  EBB_CPU_ONLY("tests/engine/devices/backend_lossless_test.cc has lossless sessions over devices");
  std::vector<Part> parts;
  for (int i = 0; i < 3; ++i) {
    Part part = {.prompt = SomeTokens(i == 0 ? 600 : 80, 50 + i),
                 .generated = SomeTokens(30, 90 + i)};
    part.options.policy = SmallPolicy("streaming", "32");
    if (i < 2) part.options.lossless = LosslessOptions();
    parts.push_back(part);
  }
  ExpectMixedBits(ModelOf("q4_1"), {.threads = 2}, parts);
}

TEST(Batch, ABatchThatChangesItsSizeBuildsNoGraphAfterItsFirstRounds) {
  EBB_CPU_ONLY("it needs steps of several tokens with the bits of steps of one");
  auto engine = MakeEngine();
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 12; ++i) {
    sessions.push_back(Open(*engine));
    ExpectOk(sessions.back()->Prefill(SomeTokens(10 + i)));
  }
  const GraphRunner& runner = *Internals::Of(*engine).runner;
  const auto round = [&] {
    for (size_t size = 2; size <= sessions.size(); ++size) {
      std::vector<SessionStep> batch;
      for (size_t i = 0; i < size; ++i) {
        batch.push_back({.session = sessions[i].get(), .token = static_cast<Token>(5 + i)});
      }
      ExpectOk(engine->Step(batch));
    }
  };
  const int64_t before = runner.steps().num_graphs_built();
  round();
  const int64_t warm = runner.steps().num_graphs_built();
  EXPECT_GT(warm, before);
  round();
  round();
  EXPECT_EQ(runner.steps().num_graphs_built(), warm);
}

TEST(Batch, APromptInPiecesTakesNoOtherTokens) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  const std::vector<Token> prompt = SomeTokens(40);
  EXPECT_EQ(session->BeginPrompt({}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(session->prompt_left(), 0u);
  SessionStep idle[] = {{.session = session.get()}};
  EXPECT_EQ(engine->Step(idle).status.message(),
            "a part of a batch has neither a token nor a prompt to read");
  EXPECT_FALSE(idle[0].status.ok());
  ExpectOk(session->BeginPrompt(prompt));
  EXPECT_EQ(session->prompt_left(), 40u);
  SessionStep piece[] = {{.session = session.get(), .most_prompt_tokens = 15}};
  ExpectOk(engine->Step(piece));
  EXPECT_EQ(session->prompt_left(), 25u);
  EXPECT_EQ(session->next_position(), 15);
  for (const Status& status :
       {session->Decode(5).status, session->Prefill(prompt).status, session->BeginPrompt(prompt)}) {
    EXPECT_EQ(status.message(), "the session is reading a prompt, of which 25 tokens are left");
  }
  ExpectOk(session->TruncateTo(10));
  EXPECT_EQ(session->prompt_left(), 0u);
  ExpectOk(session->Prefill(std::span(prompt).subspan(10)));
  auto whole = Open(*engine);
  ExpectOk(whole->Prefill(std::span(prompt).first(10)));
  ExpectOk(whole->Prefill(std::span(prompt).subspan(10)));
  ExpectOk(session->Decode(7));
  ExpectOk(whole->Decode(7));
  EXPECT_LT(LargestDifference(Logits(*whole), Logits(*session)), 1e-3);
}

TEST(Batch, AStepReadsAsManyTokensAsItsTimeAllows) {
  for (const double seconds : {0.0, -1.0}) {
    auto refused = Engine::Create(SmallModel(), {.threads = 1, .max_stall_seconds = seconds});
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  }
  auto engine = MakeEngine({.threads = 1, .max_stall_seconds = 1e-9});
  auto session = Open(*engine);
  ExpectOk(session->BeginPrompt(SomeTokens(100)));
  SessionStep parts[] = {{.session = session.get()}};
  ExpectOk(engine->Step(parts));  // nothing is known yet
  EXPECT_EQ(session->next_position(), 32);
  ExpectOk(engine->Step(parts));
  EXPECT_EQ(session->next_position(), 34);
  auto patient = MakeEngine({.threads = 1, .max_stall_seconds = 3600});
  auto other = Open(*patient);
  ExpectOk(other->BeginPrompt(SomeTokens(100)));
  SessionStep others[] = {{.session = other.get()}};
  ExpectOk(patient->Step(others));
  ExpectOk(patient->Step(others));
  EXPECT_EQ(other->prompt_left(), 0u);
  EXPECT_FALSE(other->logits().empty());
}

TEST(Batch, ASessionOutlivesItsEngine) {
  auto engine = MakeEngine();
  auto session = Open(*engine), other = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(20)));
  ExpectOk(other->Prefill(SomeTokens(20)));
  engine.reset();
  ExpectOk(session->Decode(5));
  other.reset();
  ExpectOk(session->Decode(6));
  EXPECT_EQ(session->next_position(), 22);
}

TEST(Batch, OneSessionsErrorIsNamedAndNobodySteps) {
  auto engine = MakeEngine();
  auto fits = Open(*engine);
  SessionOptions options;
  options.context = 12;
  auto full = Open(*engine, options);
  ExpectOk(fits->Prefill(SomeTokens(12)));
  ExpectOk(full->Prefill(SomeTokens(12)));
  const std::vector<float> before = Logits(*fits);
  SessionStep parts[] = {{.session = fits.get(), .token = 5}, {.session = full.get(), .token = 5}};
  EXPECT_EQ(engine->Step(parts).status.code(), StatusCode::kContextFull);
  EXPECT_TRUE(parts[0].status.ok());
  EXPECT_EQ(parts[1].status.code(), StatusCode::kContextFull);
  EXPECT_EQ(fits->next_position(), 12);
  EXPECT_EQ(Logits(*fits), before);
  ExpectOk(engine->Step(std::span(parts).first(1)));
  EXPECT_EQ(fits->next_position(), 13);
}

}  // namespace
}  // namespace ebb
