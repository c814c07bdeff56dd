// Sessions that guess by a head: right and wrong guesses leave tokens and bits as plain decoding
// has them, through roll-backs, forks, files, batches and tiers.
#include <gmock/gmock.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/session_file.h"
#include "src/model/loaded/loaded_model.h"
#include "tests/engine/guessed_batch.h"
#include "tests/engine/guessed_text.h"
#include "tests/engine/heads/head_cases.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("a device rounds several tokens of a step differently than one");

class Head : public testing::TestWithParam<HeadCase> {
 protected:
  [[nodiscard]] std::vector<Token> Tokens(size_t count, uint64_t seed) const {
    return TextTokens(*loaded_.plain, count, seed);
  }

  const TempFolder folder_;
  const LoadedHead loaded_{GetParam(), folder_};
};

class HeadOfEachFamily : public Head {};

TEST_P(HeadOfEachFamily, ChangesNoBit) {
  auto plain_engine = MakeEngineOf(loaded_.plain), engine = loaded_.MakeEngine();
  for (const float temperature : {0.0F, 0.9F}) {
    auto plain = Open(*plain_engine);
    auto guessing = loaded_.Open(*engine);
    EXPECT_TRUE(guessing->TakesGuesses());
    for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(Tokens(100, 1)));
    ASSERT_EQ(plain->logits_hash(), guessing->logits_hash()) << "the prompt";
    const GuessedText expected = GenerateText(*loaded_.plain, plain.get(), temperature, 80);
    const GuessedText found = GenerateText(*loaded_.plain, guessing.get(), temperature, 80);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.hash, expected.hash);
    EXPECT_EQ(found.report.draft_source, loaded_.source);
    EXPECT_GT(found.report.drafted_by_source, 30);
    EXPECT_EQ(found.report.drafted_by_source, found.report.drafted);
    EXPECT_EQ(found.report.accepted_by_source, found.report.accepted);
  }
}

TEST_P(Head, FollowsRollBacksPromptsForksAndFiles) {
  auto plain_engine = MakeEngineOf(loaded_.plain), engine = loaded_.MakeEngine();
  auto plain = Open(*plain_engine);
  auto guessing = loaded_.Open(*engine);
  const auto expect_same = [&] { ExpectSameText(*loaded_.plain, plain.get(), guessing.get(), 16); };
  const auto both = [&](const auto& act) {
    for (Session* one : {plain.get(), guessing.get()}) ExpectOk(act(*one));
  };
  both([&](Session& one) { return one.Prefill(Tokens(70, 1)).status; });
  ASSERT_NO_FATAL_FAILURE(expect_same());
  both([&](Session& one) { return one.TruncateTo(one.NearestTruncation(80)); });
  both([&](Session& one) { return one.Prefill(Tokens(3, 4)).status; });
  ASSERT_NO_FATAL_FAILURE(expect_same());
  both([&](Session& one) { return one.Prefill(Tokens(40, 9)).status; });
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
  const std::string path = folder_.File("session");
  ExpectOk(SaveSession(*guessing, path));
  auto resumed = ResumeSession(
      *engine, path, SessionOptions{.speculation = Speculation::kAuto, .least_guesses = 5});
  ExpectOk(resumed.status());
  guessing = std::move(resumed->session);
  ASSERT_NO_FATAL_FAILURE(expect_same());
  // Guesses are part of no session's identity.
  ExpectOk(ResumeSession(*plain_engine, path, {}).status());
}

// The session reads its prompt in pieces and decodes in batches with another session, whose steps
// compute no guesses of the head. Between these, half of the guesses are right.
TEST_P(Head, FollowsBatchesAndTakesRightGuesses) {
  auto plain_engine = MakeEngineOf(loaded_.plain), engine = loaded_.MakeEngine();
  auto plain = Open(*plain_engine), neighbour = Open(*engine);
  auto guessing = loaded_.Open(*engine);
  ExpectOk(plain->Prefill(Tokens(90, 1)));
  ExpectOk(neighbour->Prefill(Tokens(20, 3)));
  ExpectOk(guessing->BeginPrompt(Tokens(90, 1)));
  const std::vector<Token> answer = Tokens(60, 2);
  size_t of_neighbour = 0;
  while (guessing->prompt_left() > 0) {
    std::vector<SessionStep> parts = {
        {.session = guessing.get(), .most_prompt_tokens = 24},
        {.session = neighbour.get(), .token = answer[of_neighbour++]}};
    ExpectOk(engine->Step(parts));
  }
  ASSERT_EQ(plain->logits_hash(), guessing->logits_hash());
  for (size_t i = 0; i < 24; ++i) {
    ExpectOk(plain->Decode(answer[i]));
    if (i % 3 == 0) {
      ExpectOk(guessing->Decode(answer[i], [&](std::span<const float> logits) {
        return std::optional<Guessed>(i % 2 == 0 ? answer[i + 1] : LikeliestOf(logits));
      }));
    } else {
      const std::vector<Session*> sessions = {neighbour.get(), guessing.get()};
      const std::vector<Token> tokens = {answer[of_neighbour++], answer[i]};
      ExpectOk(engine->DecodeBatch(sessions, tokens));
    }
    ASSERT_EQ(plain->logits_hash(), guessing->logits_hash()) << i;
  }
  EXPECT_GT(guessing->speculation_report().accepted_by_source, 0);
}

TEST_P(Head, GuessesInBatches) {
  EngineOptions options = {.threads = 1, .tiers = EngineTiers{.t1 = T1Place::kHost}};
  SessionOptions session = {.speculation = loaded_.source, .least_guesses = 3, .most_guesses = 3};
  session.policy = {.window = 16, .interval = 8, .tiers = TierShares{.t0_share = 0.3}};
  if (loaded_.plain->shape().SmallestWindow() > 0) {
    session.policy.granularity = Granularity::kLayer;
  }
  auto plain_engine = MakeEngineOf(loaded_.plain, options), engine = loaded_.MakeEngine(options);
  const SpeculationReport report =
      ExpectBatchOfPlainTexts(*plain_engine, *engine, session, /*num_tokens=*/40);
  // A sequence with recurrent state guesses only while it decodes without others.
  const bool has_state = loaded_.plain->loaded().hparams.state_bytes > 0;
  EXPECT_GT(report.drafted_by_source, has_state ? 0 : 60);
}

TEST_P(Head, ChangesNoBitWithTiers) {
  // An assistant reads rows in memory.
  const bool is_assistant = loaded_.source == Speculation::kAssistant;
  const std::vector<TierSetting> settings = {
      {.engine = {.t1 = is_assistant ? T1Place::kHost : T1Place::kFile},
       .shares = {.t0_share = 0.3}},
      CompressedCache(CompressedType::kInt4)};
  for (const TierSetting& setting : settings) {
    const EngineOptions options = {.threads = 1, .tiers = setting.engine};
    SessionOptions session = {};
    session.policy.tiers = setting.shares;
    if (setting.shares.t0_share.has_value()) {
      session.policy.window = 16;
      session.policy.interval = 8;
      if (loaded_.plain->shape().SmallestWindow() > 0) {
        session.policy.granularity = Granularity::kLayer;
      }
    }
    auto plain_engine = MakeEngineOf(loaded_.plain, options), engine = loaded_.MakeEngine(options);
    auto plain = Open(*plain_engine, session);
    auto guessing = loaded_.Open(*engine, session);
    for (Session* one : {plain.get(), guessing.get()}) ExpectOk(one->Prefill(Tokens(80, 1)));
    ASSERT_NO_FATAL_FAILURE(ExpectSameText(*loaded_.plain, plain.get(), guessing.get(), 60));
    EXPECT_GT(guessing->speculation_report().drafted_by_source, 20);
  }
}

// A head in a file of its own has its part of a cap in bytes, if it has a cache. An MTP layer,
// which nobody may have asked for, leaves the cap whole.
TEST_P(Head, IsCountedByTheCapOfTheCache) {
  if (loaded_.source == Speculation::kAssistant) GTEST_SKIP();
  const uint64_t cap = uint64_t{64} << 20;
  const EngineOptions options = {.threads = 1, .kv_cap_bytes = cap};
  const uint64_t of_trunk = loaded_.MakeEngine(options)->options().kv_cap_bytes;
  if (loaded_.source == Speculation::kMtp) {
    EXPECT_EQ(of_trunk, cap);
  } else {
    EXPECT_LT(of_trunk, cap);
  }
  EXPECT_EQ(MakeEngineOf(loaded_.plain, options)->options().kv_cap_bytes, cap);
}

// Trunks of attention alone, with recurrent state, and with a window in the MTP layer; then
// the other kinds.
std::vector<HeadCase> SomeHeads() {
  const std::vector<HeadCase> mtp = MtpCases();
  std::vector<HeadCase> some = {mtp[1], mtp[3], mtp.back()};
  for (HeadCase one : Eagle3Cases()) some.push_back(std::move(one));
  for (HeadCase one : AssistantCases()) some.push_back(std::move(one));
  for (HeadCase one : DflashCases()) some.push_back(std::move(one));
  return some;
}

std::vector<HeadCase> AllHeads() {
  std::vector<HeadCase> all = MtpCases();
  for (HeadCase one : Eagle3Cases()) all.push_back(std::move(one));
  for (HeadCase one : AssistantCases()) all.push_back(std::move(one));
  for (HeadCase one : DflashCases()) all.push_back(std::move(one));
  return all;
}

std::string NameOfCase(const testing::TestParamInfo<HeadCase>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Kinds, Head, testing::ValuesIn(SomeHeads()), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Kinds, HeadOfEachFamily, testing::ValuesIn(AllHeads()), NameOfCase);

}  // namespace
}  // namespace ebb
