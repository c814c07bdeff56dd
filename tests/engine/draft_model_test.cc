// Sessions that guess by a draft model (EngineOptions::draft_model): right and wrong guesses leave
// tokens and bits as plain decoding has them.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ebb/fit.h"
#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/guessed_text.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

using testing::HasSubstr;

// A model with other weights, and so other opinions, than SmallModel().
std::shared_ptr<const Model> OtherModel() {
  RandomGgufOptions options = SmallModelOptions();
  options.seed = 77;
  return RandomModel(options);
}

GuessedText Generate(Session* session, float temperature) {
  return GenerateText(*SmallModel(), session, temperature, 120);
}

class DraftModel : public testing::TestWithParam<bool> {
 protected:
  // Opens an engine of SmallModel() whose draft model is the same, or another if `is_other`.
  std::unique_ptr<Engine> Open(bool is_other, EngineOptions options = {.threads = 1}) {
    options.draft_model = is_other ? OtherModel() : SmallModel();
    auto engine = Engine::Create(SmallModel(), options);
    ExpectOk(engine.status());
    return *std::move(engine);
  }
  static std::unique_ptr<Session> OpenGuessing(Engine& engine, SessionOptions options = {}) {
    options.speculation = Speculation::kModel;
    options.least_guesses = options.most_guesses;
    return ebb::Open(engine, options);
  }
};

TEST_P(DraftModel, ChangesNoBit) {
  auto engine = Open(/*is_other=*/GetParam());
  for (const float temperature : {0.0F, 0.9F}) {
    auto plain = ebb::Open(*engine);
    auto guessing = OpenGuessing(*engine);
    EXPECT_FALSE(plain->TakesGuesses());
    EXPECT_TRUE(guessing->TakesGuesses());
    for (Session* one : {plain.get(), guessing.get()}) {
      ExpectOk(one->Prefill(SomeTokens(300)));
    }
    const GuessedText expected = Generate(plain.get(), temperature);
    const GuessedText found = Generate(guessing.get(), temperature);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.hash, expected.hash);
    EXPECT_EQ(expected.report.drafted, 0);
    EXPECT_EQ(found.report.draft_source, Speculation::kModel);
    EXPECT_EQ(found.report.drafted_by_source, found.report.drafted);
    EXPECT_EQ(found.report.accepted_by_source, found.report.accepted);
    EXPECT_GT(found.report.drafted, 60);
    if (GetParam()) {
      EXPECT_LT(found.report.accepted, found.report.drafted / 2);
    } else {
      EXPECT_GT(found.report.accepted, 90) << "the same model guesses right";
    }
  }
}

TEST_P(DraftModel, FollowsRollBacksPromptsForksAndFiles) {
  auto engine = Open(/*is_other=*/GetParam());
  auto plain = ebb::Open(*engine);
  auto guessing = OpenGuessing(*engine);
  const auto expect_same = [&] { ExpectSameText(*SmallModel(), plain.get(), guessing.get(), 120); };
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(150)));
  ASSERT_NO_FATAL_FAILURE(expect_same());
  for (Session* one : {plain.get(), guessing.get()}) {
    ExpectOk(one->TruncateTo(180));
    ExpectOk(one->Decode(7));
  }
  ASSERT_NO_FATAL_FAILURE(expect_same());
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(40, 9)));
  ASSERT_NO_FATAL_FAILURE(expect_same());
  auto fork = guessing->Fork();
  ExpectOk(fork.status());
  EXPECT_TRUE((*fork)->TakesGuesses());
  guessing = *std::move(fork);
  ASSERT_NO_FATAL_FAILURE(expect_same());
  const TempFolder folder;
  ExpectOk(SaveSession(*guessing, folder.File("session")));
  auto resumed =
      ResumeSession(*engine, folder.File("session"),
                    SessionOptions{.speculation = Speculation::kAuto, .least_guesses = 5});
  ExpectOk(resumed.status());
  guessing = std::move(resumed->session);
  ASSERT_NO_FATAL_FAILURE(expect_same());
}

INSTANTIATE_TEST_SUITE_P(SameOrOther, DraftModel, testing::Bool(),
                         [](const auto& info) { return info.param ? "Other" : "Same"; });

TEST_F(DraftModel, MayHaveACompressedCache) {
  auto engine =
      Open(/*is_other=*/false, {.threads = 1, .draft_compressed_type = CompressedType::kInt4});
  auto plain = ebb::Open(*engine);
  auto guessing = OpenGuessing(*engine);
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(400)));
  const GuessedText expected = Generate(plain.get(), 0);
  const GuessedText found = Generate(guessing.get(), 0);
  EXPECT_EQ(found.hash, expected.hash);
  EXPECT_GT(found.report.accepted, 20);
}

// The draft has its own part of the cap; where it ends, guessing ends, and the text does not.
TEST_F(DraftModel, IsCountedByTheCapOfTheCache) {
  const uint64_t cap = uint64_t{12} << 20;
  auto engine = Open(/*is_other=*/false, {.threads = 1, .kv_cap_bytes = cap});
  EXPECT_EQ(engine->options().kv_cap_bytes, cap / 2);
  auto guessing = OpenGuessing(*engine, {.context = 2000});
  auto plain_engine = Engine::Create(SmallModel(), {.threads = 1});
  auto plain = ebb::Open(**plain_engine, {.context = 2000});
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(1500)));
  EXPECT_EQ(Generate(guessing.get(), 0).hash, Generate(plain.get(), 0).hash);
  EXPECT_LE(engine->arena_accounting().peak_bytes, cap / 2);
  const EngineOptions options = {.threads = 1, .kv_cap_bytes = cap, .draft_model = SmallModel()};
  EXPECT_EQ(FitRequestOf(*SmallModel(), options, {}, 0).kv_cap_bytes, cap / 2);
  const auto fit = MeasureFitModel(*SmallModel(), options);
  ExpectOk(fit.status());
  EXPECT_EQ(fit->draft_cap_bytes, cap / 2);
}

// A plan keeps the cap that was asked for, which the engine divides.
TEST_F(DraftModel, IsPlannedWithItsPartOfT0) {
  const uint64_t cap = uint64_t{16} << 20;
  EngineOptions engine = {.threads = 1, .draft_model = SmallModel()};
  SessionOptions session;
  SetTiers(TierSetting{.engine = {.t0_cap_bytes = cap, .t1 = T1Place::kHost}}, &engine, &session);
  const auto plan =
      PlanMemory(*SmallModel(), {.memory_bytes = uint64_t{64} << 30}, engine, session);
  ExpectOk(plan.status());
  EXPECT_EQ(plan->setting.tiers->engine.t0_cap_bytes, cap);
  EXPECT_EQ(FitRequestOf(*SmallModel(), engine, session, 0).tiers->engine.t0_cap_bytes, cap / 2);
}

// T0's part is too small for the decisions of a compressed cache. A session that names no source
// goes on without the draft.
TEST_F(DraftModel, FailsOnlySessionsThatNameIt) {
  RandomGgufOptions shape = SixteenStreamsOptions();
  shape.num_layers = 32;
  const auto model = RandomModel(shape);
  auto engine = MakeEngineOf(model, {.threads = 1,
                                     .kv_cap_bytes = uint64_t{4} << 20,
                                     .draft_model = model,
                                     .draft_compressed_type = CompressedType::kInt4});
  EXPECT_EQ(engine->OpenSession({.speculation = Speculation::kModel}).status().code(),
            StatusCode::kInvalidArgument);
  auto session = ebb::Open(*engine, SessionOptions{.speculation = Speculation::kAuto});
  EXPECT_FALSE(session->TakesGuesses());
  EXPECT_EQ(session->speculation_obstacle(), "");
  ExpectOk(session->Fork().status());
}

TEST_F(DraftModel, WhoseBytesAreUnknownIsNotCountedAsNothing) {
  RandomGgufOptions shape = SmallModelOptions();
  shape.family = "gemma3";
  shape.sliding_window = 16;
  shape.window_layers = {true, false};
  const auto fit = MeasureFitModel(*SmallModel(), {.draft_model = RandomModel(shape),
                                                   .draft_compressed_type = CompressedType::kInt4});
  ExpectOk(fit.status());
  const auto bytes = FitRequestInto(*fit, {.context = 100});
  EXPECT_EQ(bytes.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(bytes.status().message(), HasSubstr("the draft model: the memory of tiers"));
}

TEST_F(DraftModel, NeedsTheSameVocabulary) {
  RandomGgufOptions options = SmallModelOptions();
  options.tokenizer = RandomGgufOptions::Tokenizer::kUnigram;
  const auto engine =
      Engine::Create(SmallModel(), {.threads = 1, .draft_model = RandomModel(options)});
  ASSERT_EQ(engine.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(engine.status().message(), HasSubstr("the draft model has another vocabulary"));
}

// The session measures what guesses cost and yield, and stops drafting if they cost more.
TEST_F(DraftModel, StopsWhereItDoesNotPay) {
  auto engine = Open(/*is_other=*/true);
  SessionOptions options = {.speculation = Speculation::kAuto};
  auto guessing = ebb::Open(*engine, options);
  auto plain = ebb::Open(*engine);
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(SomeTokens(100)));
  const GuessedText found = Generate(guessing.get(), 0.9F);
  EXPECT_EQ(found.hash, Generate(plain.get(), 0.9F).hash);
  EXPECT_LT(found.report.verify_steps, 60);
}

}  // namespace
}  // namespace ebb
