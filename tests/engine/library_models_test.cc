// Tests models other than the dense ones of the other tests, one of each kind: mixtures of experts,
// sliding windows with attention sinks, recurrent state together with attention. No bit depends on
// tiers, pieces of prompts, other sequences in a step, forks or files.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <random>

#include "ebb/fit.h"
#include "ebb/generate.h"
#include "ebb/session_file.h"
#include "src/attention/rows.h"
#include "src/session/session_impl.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/engine/library_models.h"
#include "tests/support/logits.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr int kContext = 256;  // that the models were made for

// Jamba, PLaMo 2 and Kimi Linear keep states by ebb's patch of llama.cpp.
#ifdef EBB_LLAMA_IS_PATCHED
constexpr bool kIsPatched = true;
#else
constexpr bool kIsPatched = false;
#endif

struct Kind {
  LibraryModelOptions options;
  bool has_state = false;
  // The graph keeps the states after each token of a step, so that guesses can be dropped.
  bool keeps_states = false;
  // Products of computed matrices, whose bits depend on how many tokens there are.
  bool has_computed_products = false;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << NameOf(kind.options);
}

class LibraryModels : public testing::TestWithParam<Kind> {
 protected:
  static std::shared_ptr<const Model> LoadModel() {
    const TempFolder folder;
    const std::string path = folder.File("model.gguf");
    ExpectOk(WriteLibraryModel(GetParam().options, path));
    auto model = Model::Load({.path = path});
    EXPECT_TRUE(model.ok()) << model.status().ToString();
    return *model;
  }
  [[nodiscard]] std::vector<Token> Tokens(size_t count, uint64_t seed) const {
    return TextTokens(*model_, count, seed);
  }
  [[nodiscard]] Token EndOfMessage() const {
    for (Token token = 0; token < model_->shape().vocab_size; ++token) {
      if (model_->IsControl(token)) return token;
    }
    ADD_FAILURE() << "no control token";
    return 0;
  }
  [[nodiscard]] bool HasWindows() const { return model_->shape().SmallestWindow() > 0; }
  // The hash of the last logits of a session that reads and decodes by itself.
  [[nodiscard]] uint64_t Alone(const SessionOptions& options = {},
                               const EngineOptions& engine_options = {.threads = 2}) const {
    auto engine = MakeEngineOf(model_, engine_options);
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(prompt_));
    for (const Token token : answer_) ExpectOk(session->Decode(token));
    return session->logits_hash();
  }

  const std::shared_ptr<const Model> model_ = LoadModel();
  const std::vector<Token> prompt_ = Tokens(150, 1);
  const std::vector<Token> answer_ = Tokens(40, 2);
};

TEST_P(LibraryModels, AreBuiltByTheLibrary) {
  EXPECT_EQ(model_->family(), GetParam().options.architecture);
  EXPECT_GT(model_->weight_bytes(), 0u);
}

TEST_P(LibraryModels, SayWhetherTheirBitsDependOnTheBatch) {
  EXPECT_EQ(!model_->batch_dependence().empty(), GetParam().has_computed_products)
      << model_->batch_dependence();
}

TEST_P(LibraryModels, NoBitDependsOnTheTierOfARow) {
  const uint64_t expected = Alone();
  for (const T1Place place : {T1Place::kHost, T1Place::kFile}) {
    const TierSetting tiers = {.engine = {.t1 = place}, .shares = {.t0_share = 0.3}};
    SessionOptions options;
    options.policy = {.name = "attention", .window = 16, .interval = 8, .tiers = tiers.shares};
    if (HasWindows()) options.policy.granularity = Granularity::kLayer;
    EXPECT_EQ(Alone(options, {.threads = 2, .tiers = tiers.engine}), expected)
        << T1PlaceName(place);
  }
}

TEST_P(LibraryModels, NoBitDependsOnPiecesOrNeighbours) {
  if (GetParam().has_computed_products) GTEST_SKIP() << "they do, by rounding";
  const uint64_t expected = Alone();
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto reader = Open(*engine);
  std::vector<std::unique_ptr<Session>> others;
  for (uint64_t i = 0; i < 3; ++i) {
    others.push_back(Open(*engine));
    ExpectOk(others.back()->Prefill(Tokens(20 + 5 * i, 10 + i)));
  }
  ExpectOk(reader->BeginPrompt(prompt_));
  std::mt19937 random(3);
  size_t next = 0;
  const std::vector<Token> of_others = Tokens(200, 20);
  for (size_t step = 0; next < answer_.size(); ++step) {
    std::vector<SessionStep> batch;
    if (reader->prompt_left() > 0) {
      batch.push_back({.session = reader.get(), .most_prompt_tokens = 2 + random() % 40});
    } else {
      batch.push_back({.session = reader.get(), .token = answer_[next++]});
    }
    for (auto& other : others) {
      if (random() % 3 != 0) batch.push_back({.session = other.get(), .token = of_others[step]});
    }
    ExpectOk(engine->Step(batch));
  }
  EXPECT_EQ(reader->logits_hash(), expected);
}

TEST_P(LibraryModels, PoliciesEvictAndGoOn) {
  for (const char* name : {"h2o", "streaming", "attention", "lag_key"}) {
    SessionOptions options;
    options.policy = SmallPolicy(name, "64");
    if (HasWindows()) options.policy.granularity = Granularity::kLayer;
    auto engine = MakeEngineOf(model_, {.threads = 2});
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(answer_));
    for (const Token token : prompt_) ExpectOk(session->Decode(token));
    EXPECT_GT(session->accounting().rows_evicted, 0) << name;
    for (const float logit : session->logits()) ASSERT_TRUE(std::isfinite(logit)) << name;
  }
}

TEST_P(LibraryModels, AForkASavedSessionAndItsSourceGoOnAlike) {
  const uint64_t expected = Alone();
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto session = Open(*engine);
  ExpectOk(session->Prefill(prompt_));
  for (size_t i = 0; i < 10; ++i) ExpectOk(session->Decode(answer_[i]));
  auto fork = session->Fork();
  ASSERT_TRUE(fork.ok()) << fork.status().ToString();
  const TempFolder folder;
  const std::string path = folder.File("session");
  ExpectOk(SaveSession(*session, path));
  auto resumed = ResumeSession(*engine, path, {});
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* each : {session.get(), fork->get(), resumed->session.get()}) {
    for (size_t i = 10; i < answer_.size(); ++i) ExpectOk(each->Decode(answer_[i]));
    EXPECT_EQ(each->logits_hash(), expected);
  }
}

TEST_P(LibraryModels, ARolledBackAnswerIsReadAgainAlike) {
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto session = Open(*engine);
  ExpectOk(session->Prefill(prompt_));
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  const std::vector<float> expected = Logits(*session);
  const auto end = static_cast<Position>(prompt_.size());
  // The answer is longer than the windows.
  const bool only_to_prompts = GetParam().has_state || HasWindows();
  EXPECT_EQ(session->NearestTruncation(end + 5), only_to_prompts ? end : end + 5);
  ExpectOk(session->TruncateTo(end));
  for (const Token token : Tokens(20, 5)) ExpectOk(session->Decode(token));
  ExpectOk(session->TruncateTo(end));
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  EXPECT_EQ(Logits(*session), expected);
  ExpectOk(session->TruncateTo(0));
  ExpectOk(session->Prefill(prompt_));
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  EXPECT_EQ(Logits(*session), expected);
}

// The next turn of a conversation: its prompt holds the one before and an answer.
TEST_P(LibraryModels, APromptThatContinuesAnotherTakesItsRows) {
  std::vector<Token> longer = prompt_;
  const std::vector<Token> more = Tokens(30, 6);
  longer.insert(longer.end(), more.begin(), more.end());
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto whole = Open(*engine);
  ExpectOk(whole->Prefill(longer));
  auto first = Open(*engine);
  ExpectOk(first->Prefill(prompt_));
  for (const Token token : answer_) ExpectOk(first->Decode(token));
  auto second = Open(*engine);
  const auto taken = BeginPromptFrom(first.get(), longer, second.get());
  ASSERT_TRUE(taken.ok()) << taken.status().ToString();
  EXPECT_EQ(*taken, prompt_.size());
  while (second->prompt_left() > 0) {
    std::vector<SessionStep> batch = {{.session = second.get()}};
    ExpectOk(engine->Step(batch));
  }
  if (GetParam().has_computed_products) {
    EXPECT_LT(LargestDifference(Logits(*second), Logits(*whole)), 1e-3);
  } else {
    EXPECT_EQ(Logits(*second), Logits(*whole));
  }
}

// A prompt of two messages, between which stands a control token, and others that share its first
// message or all of it: an edited question, a second one about the same text, the same one again.
TEST_P(LibraryModels, PromptsThatBeginAlikeShareRows) {
  const Token end_of_message = EndOfMessage();
  const auto prompt_of = [&](size_t first, uint64_t question) {
    std::vector<Token> prompt = Tokens(first, 31);
    prompt.push_back(end_of_message);
    const std::vector<Token> second = Tokens(60, question);
    prompt.insert(prompt.end(), second.begin(), second.end());
    return prompt;
  };
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto first = Open(*engine);
  ExpectOk(first->Prefill(prompt_of(90, 32)));
  for (const Token token : answer_) ExpectOk(first->Decode(token));
  struct Case {
    const char* name;
    std::vector<Token> prompt;
    size_t least_shared;
  };
  const Case cases[] = {{"another question", prompt_of(90, 33), 90},
                        {"the same again", prompt_of(90, 32), 90 + 61 - 2}};
  for (const Case& one : cases) {
    auto alone = Open(*engine);
    ExpectOk(alone->Prefill(one.prompt));
    auto sharing = Open(*engine);
    const auto taken = BeginPromptFrom(first.get(), one.prompt, sharing.get());
    ASSERT_TRUE(taken.ok()) << taken.status().ToString();
    EXPECT_GE(*taken, one.least_shared) << one.name;
    while (sharing->prompt_left() > 0) {
      std::vector<SessionStep> batch = {{.session = sharing.get()}};
      ExpectOk(engine->Step(batch));
    }
    if (GetParam().has_computed_products) {
      EXPECT_LT(LargestDifference(Logits(*sharing), Logits(*alone)), 1e-3) << one.name;
    } else {
      EXPECT_EQ(Logits(*sharing), Logits(*alone)) << one.name;
    }
    // A third session takes the shared beginning from the one that took it.
    auto third = Open(*engine);
    EXPECT_GE(*BeginPromptFrom(sharing.get(), prompt_of(90, 34), third.get()), 90) << one.name;
  }
}

// A conversation whose last question is edited goes back to the end of the answer before it.
TEST_P(LibraryModels, ASessionGoesBackToTheEndOfItsLastAnswer) {
  auto engine = MakeEngineOf(model_, {.threads = 2});
  const auto ask = [&](Session* session, uint64_t question) {
    ExpectOk(session->Prefill(Tokens(50, question)));
    for (const Token token : Tokens(20, 60)) ExpectOk(session->Decode(token));
  };
  auto session = Open(*engine);
  ask(session.get(), 61);
  const Position end = session->next_position();
  ask(session.get(), 62);
  EXPECT_EQ(session->NearestTruncation(end), end);
  ExpectOk(session->TruncateTo(end));
  ask(session.get(), 63);
  auto other = Open(*engine);
  ask(other.get(), 61);
  ask(other.get(), 63);
  EXPECT_EQ(Logits(*session), Logits(*other));
}

// Guesses of which one in six is wrong; the session is rolled back, forked and read on in between.
TEST_P(LibraryModels, GuessesChangeNoBitOrAreRefused) {
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto plain = Open(*engine);
  auto guessing = Open(*engine, SessionOptions{.speculation = Speculation::kLookup});
  const bool may_guess =
      !GetParam().has_computed_products && (!GetParam().has_state || GetParam().keeps_states);
  ASSERT_EQ(guessing->speculation_obstacle().empty(), may_guess)
      << guessing->speculation_obstacle();
  if (GetParam().has_computed_products) {
    const SessionOptions inexact = {.speculation = Speculation::kLookup, .guesses_inexactly = true};
    EXPECT_EQ(Open(*engine, inexact)->speculation_obstacle().empty(), !GetParam().has_state);
    EXPECT_EQ(FitRequestOf(*model_, {}, inexact, 0).decode_tokens > 1, !GetParam().has_state);
  }
  if (!may_guess) return;
  const std::vector<Token> text = Tokens(150, 7);
  size_t next = 0;
  std::mt19937 random(8);
  const auto guess = [&](int most) {
    std::vector<Token> guesses;
    const size_t end = std::min(text.size(), next + random() % 13);
    for (size_t i = next; i < end && static_cast<int>(guesses.size()) < most; ++i) {
      guesses.push_back(random() % 6 != 0 ? text[i] : text[(i + 1) % text.size()]);
    }
    return guesses;
  };
  int64_t accepted = 0;
  Internals::Of(*guessing).lookup->GuessBy(guess);
  const std::span<const Token> prompt = std::span(prompt_).first(40);
  for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(prompt));
  while (next < text.size()) {
    const Token token = text[next++];
    for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Decode(token));
    ASSERT_TRUE(std::isfinite(plain->logits().front()));
    ASSERT_EQ(guessing->logits_hash(), plain->logits_hash()) << next;
    if (next == 50) {
      const Position end = plain->NearestTruncation(plain->next_position() - 3);
      ASSERT_EQ(guessing->NearestTruncation(plain->next_position() - 3), end);
      for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->TruncateTo(end));
    } else if (next == 90) {
      for (Session* one : {plain.get(), guessing.get()})
        ExpectOk(one->Prefill(std::span(answer_).first(20)));
    } else if (next == 120) {
      accepted += guessing->speculation_report().accepted;
      auto fork = guessing->Fork();
      ExpectOk(fork.status());
      guessing = *std::move(fork);
      Internals::Of(*guessing).lookup->GuessBy(guess);
    }
  }
  EXPECT_GT(accepted + guessing->speculation_report().accepted, 60);
  EXPECT_EQ(Logits(*guessing), Logits(*plain));
}

TEST_P(LibraryModels, LosslessGenerationIsExactOrRefused) {
  SessionOptions options;
  options.policy = SmallPolicy("streaming", "48");
  options.lossless.emplace();
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto session = engine->OpenSession(options);
  if (HasWindows() || GetParam().has_state) {
    ASSERT_EQ(session.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(session.status().message(), HasSubstr("lossless sessions are not supported"));
    return;
  }
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  auto full = Open(*engine);
  ExpectOk((*session)->Prefill(prompt_));
  ExpectOk(full->Prefill(prompt_));
  for (const Token token : answer_) {
    ExpectOk((*session)->Decode(token));
    ExpectOk(full->Decode(token));
    ASSERT_EQ((*session)->logits_hash(), full->logits_hash());
  }
}

// Longer than the cache that libllama has while it builds graphs, in chunks of which each is longer
// too.
TEST_P(LibraryModels, ALongPromptIsReadInChunksOfAnyLength) {
  LibraryModelOptions options = GetParam().options;
  options.sizes["context_length"] = 1024;
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  ExpectOk(WriteLibraryModel(options, path));
  const auto model = Model::Load({.path = path});
  ExpectOk(model.status());
  const std::vector<Token> prompt = Tokens(700, 9);
  std::vector<std::vector<float>> logits;
  for (const int chunk : {512, 100}) {
    auto engine = MakeEngineOf(*model, {.threads = 2, .prefill_chunk = chunk});
    auto session = Open(*engine);
    ExpectOk(session->Prefill(prompt));
    const auto shown = Logits(*session);
    logits.emplace_back(shown.begin(), shown.end());
  }
  EXPECT_TRUE(std::ranges::all_of(logits[0], [](float x) { return std::isfinite(x); }));
  if (options.weight_type == "f32") {
    EXPECT_LT(LargestDifference(logits[0], logits[1]), 2e-2);
  }
}

TEST_P(LibraryModels, StateIsCountedAndOneForASequence) {
  auto engine = MakeEngineOf(model_, {.threads = 2});
  auto session = Open(*engine);
  ExpectOk(session->Prefill(prompt_));
  const size_t bytes = session->accounting().state_bytes;
  EXPECT_EQ(bytes > 0, GetParam().has_state);
  for (const Token token : answer_) ExpectOk(session->Decode(token));
  EXPECT_EQ(session->accounting().state_bytes, bytes);
}

TEST_P(LibraryModels, RowsTakeTheBytesOfTheirFormatInEveryTier) {
  const ModelShape& shape = model_->shape();
  const std::vector<float> exact = [&] {
    auto engine = MakeEngineOf(model_, {.threads = 2});
    auto session = Open(*engine);
    ExpectOk(session->Prefill(prompt_));
    for (const Token token : answer_) ExpectOk(session->Decode(token));
    return std::vector<float>(session->logits().begin(), session->logits().end());
  }();
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4}) {
    const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = type},
                               .shares = {.t0_share = 0.5, .t2_share = 0.5}};
    SessionOptions options;
    options.policy = {.name = "attention", .window = 16, .interval = 8, .tiers = tiers.shares};
    if (HasWindows()) options.policy.granularity = Granularity::kLayer;
    auto engine = MakeEngineOf(model_, {.threads = 2, .tiers = tiers.engine});
    auto session = Open(*engine, options);
    ExpectOk(session->Prefill(prompt_));
    for (const Token token : answer_) ExpectOk(session->Decode(token));
    const size_t of_vector = shape.head_dim * sizeof(uint16_t);
    const size_t full = shape.has_values ? 2 * of_vector : of_vector;
    const CompressedFormat compressed = {
        .type = type, .head_dim = shape.head_dim, .has_values = shape.has_values};
    const CacheAccounting accounting = session->accounting();
    for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
      const TierAccounting& of_tier = accounting.tiers[static_cast<size_t>(tier)];
      const size_t row_bytes = tier == Tier::kT2 ? compressed.RowStride() : full;
      EXPECT_GT(of_tier.rows, 0) << TierName(tier);
      EXPECT_EQ(of_tier.row_bytes, of_tier.rows * row_bytes) << TierName(tier);
    }
    const double spread = StandardDeviation(exact);
    EXPECT_LT(LargestDifference(session->logits(), exact), 0.2 * spread)
        << CompressedTypeName(type);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, LibraryModels,
    testing::Values(
        Kind{.options = {"qwen3moe", true, "q4_0"}}, Kind{.options = {"smollm3", false, "q8_0"}},
        Kind{.options = {"glm4moe", true, "q4_K"}}, Kind{.options = {"gpt-oss", true, "f32"}},
        Kind{.options = {"phi3", false, "q8_0"}}, Kind{.options = {"gemma4", false, "f32"}},
        Kind{.options = {"gemma2", false, "q8_0"}}, Kind{.options = Gemma4WithSharedRows()},
        Kind{.options = {"gemma3n", false, "f32"}, .has_computed_products = true},
        Kind{.options = {"deepseek2", true, "q8_0"}},
        Kind{.options = {"qwen35moe", true, "q4_0"}, .has_state = true, .keeps_states = true},
        Kind{.options = {"lfm2", false, "q8_0"}, .has_state = true, .keeps_states = true},
        Kind{.options = {"nemotron_h", false, "f32"}, .has_state = true, .keeps_states = true},
        Kind{.options = {"falcon-h1", false, "q8_0"}, .has_state = true, .keeps_states = true},
        Kind{.options = {"kimi-linear", true, "q8_0"},
             .has_state = true,
             .keeps_states = kIsPatched},
        Kind{.options = {"jamba", true, "q8_0"}, .has_state = true, .keeps_states = kIsPatched},
        Kind{.options = {"plamo2", false, "q8_0"}, .has_state = true, .keeps_states = kIsPatched},
        Kind{.options = {"bailingmoe3", true, "q8_0"}, .has_state = true, .keeps_states = true},
        Kind{.options = {"minimax-01", true, "f32"},
             .has_state = true,
             .has_computed_products = true}));

}  // namespace
}  // namespace ebb
