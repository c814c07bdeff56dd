// Sessions that guess by a draft model (EngineOptions::draft_model): right and wrong guesses leave
// tokens and bits as plain decoding has them.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "ebb/fit.h"
#include "ebb/session_file.h"
#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/guessed_batch.h"
#include "tests/engine/guessed_text.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

using testing::HasSubstr;
using namespace std::chrono_literals;

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

TEST_P(DraftModel, GuessesInBatches) {
  for (const bool has_t1 : {false, true}) {
    EngineOptions options = {.threads = 1};
    SessionOptions session = {
        .speculation = Speculation::kModel, .least_guesses = 4, .most_guesses = 4};
    if (has_t1) {
      options.tiers = EngineTiers{.t1 = T1Place::kHost};
      session.policy = {.window = 16, .interval = 8, .tiers = TierShares{.t0_share = 0.3}};
    }
    auto engine = Open(/*is_other=*/GetParam(), options);
    auto plain_engine = Engine::Create(SmallModel(), options);
    const SpeculationReport report = ExpectBatchOfPlainTexts(**plain_engine, *engine, session);
    EXPECT_GT(report.drafted_by_source, 100);
    if (!GetParam()) {
      EXPECT_GT(report.accepted_by_source, 100) << "the same model guesses right";
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
  const size_t bytes = guessing->accounting().table_bytes;
  guessing->ForgetGuesses();
  EXPECT_LT(guessing->accounting().table_bytes, bytes) << "the draft's cache is freed";
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

// The draft model reads a long text between steps of the batch, and then guesses.
TEST_F(DraftModel, ReadsALongTextBetweenSteps) {
  auto engine = Open(/*is_other=*/false);
  SessionOptions options = {.speculation = Speculation::kModel, .least_guesses = 3};
  std::vector<Talk> talks;
  for (uint64_t i = 0; i < 2; ++i) {
    auto session = ebb::Open(*engine, options);
    ExpectOk(session->Prefill(SomeTokens(400, i)));
    talks.emplace_back(*SmallModel(), std::move(session), 0.0F, i, 60);
  }
  std::vector<size_t> guesses;
  for (int step = 0; step < 12; ++step) {
    std::vector<SessionStep> parts;
    for (Talk& talk : talks) {
      parts.push_back({.session = talk.session.get(),
                       .token = talk.generation->Next(),
                       .most_guesses = 3,
                       .guess = talk.generation->Guesses()});
    }
    const StepOutcome outcome = engine->Step(parts);
    ExpectOk(outcome.status);
    for (Talk& talk : talks) talk.generation->Appended(outcome);
    guesses.push_back(parts[0].num_guesses + parts[1].num_guesses);
  }
  // Both texts have four pieces, of which the draft reads the last with the first guess.
  EXPECT_THAT(std::vector(guesses.begin(), guesses.begin() + 3), testing::Each(0u));
  EXPECT_GT(guesses[3] + guesses[4], 0u) << "the first text was read";
  EXPECT_GT(talks[0].session->speculation_report().accepted_by_source, 3);
  EXPECT_GT(talks[1].session->speculation_report().accepted_by_source, 3);
}

// CountingDrafter takes this long for its first guess.
class CountingDrafter : public Drafter {
 public:
  CountingDrafter(int* follows, int* rests, std::chrono::milliseconds takes)
      : follows_(*follows), rests_(*rests), takes_(takes) {}
  [[nodiscard]] Speculation source() const override { return Speculation::kModel; }
  void Follow(std::span<const Token>, const StepSignals&) override { ++follows_; }
  void Rest() override { ++rests_; }
  std::span<const float> Begin(std::span<const Token>, Token) override {
    std::this_thread::sleep_for(takes_);
    return logits_;
  }
  std::span<const float> Append(Token) override { return logits_; }
  [[nodiscard]] size_t memory_bytes() const override { return 0; }

 private:
  int& follows_;
  int& rests_;
  const std::chrono::milliseconds takes_;
  std::vector<float> logits_ = std::vector<float>(8);
};

// A drafter whose guesses were given up does not follow the text, but for some tokens before the
// next trial.
TEST(DrafterTest, RestsWhereItDoesNotPay) {
  auto engine = MakeEngine();
  for (const bool in_batch : {false, true}) {
    int follows = 0, rests = 0;
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < 2; ++i) {
      sessions.push_back(ebb::Open(*engine, {.speculation = Speculation::kLookup}));
      Internals::Of(*sessions.back())
          .lookup->SetSources(/*looks_up=*/false,
                              std::make_unique<CountingDrafter>(&follows, &rests, 10ms));
      ExpectOk(sessions.back()->Prefill(SomeTokens(20)));
    }
    EXPECT_EQ(follows, 2) << "it follows prompts";
    const Guess choose = [](std::span<const float>) { return std::optional<Guessed>(1); };
    constexpr int kTokens = 640;
    for (int i = 0; i < kTokens; ++i) {
      if (in_batch) {
        std::vector<SessionStep> parts;
        for (const auto& session : sessions) {
          parts.push_back(
              {.session = session.get(), .token = 3, .most_guesses = 4, .guess = choose});
        }
        ExpectOk(engine->Step(parts));
      } else {
        for (const auto& session : sessions) ExpectOk(session->Decode(3, choose, 4));
      }
    }
    EXPECT_EQ(follows - 2 + rests, 2 * kTokens) << in_batch;
    EXPECT_GT(rests, kTokens) << in_batch;
    if (in_batch) {
      EXPECT_GT(follows, 2 * 80) << "it is tried again";
    }
    EXPECT_LT(sessions[0]->speculation_report().drafted, 60) << in_batch;
  }
}

// Guesses that cost little and are right are computed in a batch, without being forced.
TEST(DrafterTest, GuessesInABatchWhereItPays) {
  auto engine = MakeEngine();
  const auto plain = ebb::Open(*engine);
  int follows = 0, rests = 0;
  // A step takes as long as that of a larger model.
  SessionOptions options = {.speculation = Speculation::kLookup};
  options.on_signals = [](int group, std::span<const Position>, const GroupSignals&,
                          const StepSignals& step) {
    if (group == 0 && step.kind == StepKind::kDecode) std::this_thread::sleep_for(2ms);
  };
  std::vector<std::unique_ptr<Session>> sessions;
  for (int i = 0; i < 2; ++i) {
    sessions.push_back(ebb::Open(*engine, options));
    Internals::Of(*sessions.back())
        .lookup->SetSources(/*looks_up=*/false,
                            std::make_unique<CountingDrafter>(&follows, &rests, 0ms));
    ExpectOk(sessions.back()->Prefill(SomeTokens(20)));
  }
  ExpectOk(plain->Prefill(SomeTokens(20)));
  const Guess choose = [](std::span<const float>) { return std::optional<Guessed>(3); };
  for (int i = 0; i < 200; ++i) {
    std::vector<SessionStep> parts;
    for (const auto& session : sessions) {
      parts.push_back({.session = session.get(), .token = 3, .most_guesses = 6, .guess = choose});
    }
    ExpectOk(engine->Step(parts));
    ExpectOk(plain->Decode(3));
    ASSERT_EQ(sessions[0]->logits_hash(), plain->logits_hash()) << i;
    ASSERT_EQ(sessions[1]->logits_hash(), plain->logits_hash()) << i;
  }
  EXPECT_TRUE(std::isfinite(plain->logits().front()));
  for (const auto& session : sessions) {
    EXPECT_GT(session->speculation_report().accepted_by_source, 60);
  }
  EXPECT_EQ(rests, 0);
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
