// Selective reading of T1: neither T0's share, nor T1's place, nor cached pages change the choice.
#include <gmock/gmock.h>

#include <algorithm>

#include "ebb/session_file.h"
#include "tests/engine/engine_fixture.h"
#include "tests/support/logits.h"

namespace ebb {
namespace {

using testing::HasSubstr;

constexpr size_t kSelectivePrompt = 700;
constexpr size_t kSelectiveLength = 900;

const std::vector<Token>& SelectiveText() {
  static const std::vector<Token> kText = SomeTokens(kSelectiveLength + 300);
  return kText;
}

TierSetting Selecting(double t0_share, T1Place t1 = T1Place::kFile, double mass = 0.5) {
  return {.engine = {.t1 = t1},
          .shares = {.t0_share = t0_share, .t1_read = T1Read::kSelect, .t1_mass = mass}};
}

std::unique_ptr<Engine> EngineFor(const TierSetting& tiers, int threads = 2) {
  return MakeEngineOf(DeepModel(), {.threads = threads, .tiers = tiers.engine});
}
std::unique_ptr<Session> OpenSelecting(Engine& engine, const TierSetting& tiers) {
  PolicySpec policy;
  policy.tiers = tiers.shares;
  return Open(engine, policy);
}

void DecodeText(Session& session, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) ExpectOk(session.Decode(SelectiveText()[i]));
}

struct SelectiveOutcome {
  uint64_t logits_hash = 0;
  int64_t rows_unread = 0;
  bool operator==(const SelectiveOutcome&) const = default;
};

SelectiveOutcome RunSelecting(const TierSetting& tiers, int threads = 2) {
  auto engine = EngineFor(tiers, threads);
  auto session = OpenSelecting(*engine, tiers);
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  SelectiveOutcome outcome;
  for (size_t i = kSelectivePrompt; i < kSelectiveLength; ++i) {
    ExpectOk(session->Decode(SelectiveText()[i]));
    outcome.rows_unread += session->last_step().rows_unread;
  }
  outcome.logits_hash = session->logits_hash();
  return outcome;
}

TEST(SelectiveT1, NeitherT0sShareNorT1sPlaceNorThreadsChangeABit) {
  const SelectiveOutcome expected = RunSelecting(Selecting(0));
  EXPECT_GT(expected.rows_unread, 0);
  for (const double share : {0.1, 0.2, 0.5, 1.0}) {
    EXPECT_EQ(RunSelecting(Selecting(share)), expected) << share;
  }
  EXPECT_EQ(RunSelecting(Selecting(0.3, T1Place::kHost)), expected);
  EXPECT_EQ(RunSelecting(Selecting(0.3, T1Place::kNone)), expected);
  EXPECT_EQ(RunSelecting(Selecting(0.3), 1), expected);
  EXPECT_EQ(RunSelecting(Selecting(0.3), 3), expected);
  TierSetting capped = Selecting(1);
  capped.engine.t0_cap_bytes = uint64_t{2} << 20;
  capped.shares.t0_share.reset();
  EXPECT_EQ(RunSelecting(capped), expected);
}

TEST(SelectiveT1, UnderALimitOfRowsT0sShareChangesNoBitEither) {
  TierSetting tiers = Selecting(0, T1Place::kFile, 0.9);
  const SelectiveOutcome without = RunSelecting(tiers);
  tiers.shares.t1_rows = 448;
  const SelectiveOutcome expected = RunSelecting(tiers);
  EXPECT_GT(expected.rows_unread, without.rows_unread);
  for (const double share : {0.2, 1.0}) {
    tiers.shares.t0_share = share;
    EXPECT_EQ(RunSelecting(tiers), expected) << share;
  }
  tiers.engine.t1 = T1Place::kNone;
  EXPECT_EQ(RunSelecting(tiers), expected);
}

// Queries of random models are alike by chance: half of the kv heads reuse the choice before.
TierSetting Reusing(double t0_share, T1Place t1 = T1Place::kFile) {
  TierSetting tiers = Selecting(t0_share, t1);
  tiers.shares.t1_reuse = 1e-6;
  return tiers;
}

TEST(SelectiveT1, WithReusedChoicesT0sShareChangesNoBitEither) {
  const SelectiveOutcome expected = RunSelecting(Reusing(0));
  EXPECT_NE(expected, RunSelecting(Selecting(0)));
  for (const double share : {0.1, 0.2, 0.5, 1.0}) {
    EXPECT_EQ(RunSelecting(Reusing(share)), expected) << share;
  }
  EXPECT_EQ(RunSelecting(Reusing(0.3, T1Place::kHost)), expected);
  EXPECT_EQ(RunSelecting(Reusing(0.3, T1Place::kNone)), expected);
  EXPECT_EQ(RunSelecting(Reusing(0.3), 1), expected);
  EXPECT_EQ(RunSelecting(Reusing(0.3), 3), expected);
}

TEST(SelectiveT1, AllMassReadsAllRowsAndHasTheBitsOfTheFullCache) {
  const SelectiveOutcome all = RunSelecting(Selecting(0.3, T1Place::kFile, 1));
  EXPECT_EQ(all, RunSelecting({.engine = {.t1 = T1Place::kFile}}));
  EXPECT_EQ(all.rows_unread, 0);
}

TEST(SelectiveT1, RowsBetweenTheFirstAndTheNewestLieInT1) {
  const TierSetting tiers = Selecting(0.3);
  auto engine = EngineFor(tiers);
  auto session = OpenSelecting(*engine, tiers);
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  const auto rows_in = [&](Tier tier) {
    return session->accounting().tiers[static_cast<int>(tier)].rows;
  };
  const int64_t streams = DeepModel()->shape().NumStreams();
  EXPECT_EQ(rows_in(Tier::kT1), 384 * streams);
  EXPECT_EQ(rows_in(Tier::kT0), static_cast<int64_t>(kSelectivePrompt - 384) * streams);
  DecodeText(*session, kSelectivePrompt, kSelectiveLength);
  EXPECT_EQ(rows_in(Tier::kT1), 640 * streams);
}

// Cached pages count as buffers.
TEST(SelectiveT1, ALargerShareOfT0ReadsLessOfTheFile) {
  const auto bytes_read = [](double share) {
    const TierSetting tiers = Selecting(share);
    auto engine = EngineFor(tiers);
    auto session = OpenSelecting(*engine, tiers);
    ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
    size_t bytes = 0;
    for (size_t i = kSelectivePrompt; i < kSelectiveLength; ++i) {
      ExpectOk(session->Decode(SelectiveText()[i]));
      bytes += session->last_step().t1_bytes_read;
    }
    EXPECT_GT(session->accounting().staging_bytes, 0u);
    return bytes;
  };
  const size_t without = bytes_read(0), half = bytes_read(0.5), all = bytes_read(1);
  EXPECT_LT(half, without);
  EXPECT_LE(all, half);
  EXPECT_GT(all, 0u);
}

void ExpectParkedForkedAndResumedSessionsToGoOn(const TierSetting& tiers) {
  const uint64_t expected = RunSelecting(tiers).logits_hash;
  auto engine = EngineFor(tiers);
  auto session = OpenSelecting(*engine, tiers);
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  DecodeText(*session, kSelectivePrompt, 760);
  auto fork = session->Fork();
  ExpectOk(fork.status());
  ExpectOk(session->Park());
  EXPECT_LE(session->accounting().staging_bytes, size_t{4} << 20);  // pages on their way to T1
  DecodeText(*session, 760, 800);
  ExpectOk(session->SetT0Share(0.8));
  const TempFolder folder;
  const std::string file = folder.File("session");
  ExpectOk(SaveSession(*session, file));
  DecodeText(*session, 800, kSelectiveLength);
  EXPECT_EQ(session->logits_hash(), expected);
  DecodeText(**fork, 760, kSelectiveLength);
  EXPECT_EQ((*fork)->logits_hash(), expected);
  SessionOptions options;
  options.policy.tiers = tiers.shares;
  auto resumed = ResumeSession(*engine, file, options);
  ExpectOk(resumed.status());
  DecodeText(*resumed->session, 800, kSelectiveLength);
  EXPECT_EQ(resumed->session->logits_hash(), expected);
}

TEST(SelectiveT1, ParkedForkedSavedAndResumedSessionsGoOnAsBefore) {
  ExpectParkedForkedAndResumedSessionsToGoOn(Selecting(0.3));
  ExpectParkedForkedAndResumedSessionsToGoOn(Reusing(0.3));
}

void ExpectABatchToAgreeWithSingleSteps(const TierSetting& tiers) {
  auto engine = EngineFor(tiers);
  std::vector<std::unique_ptr<Session>> batched;
  std::vector<Session*> batch;
  std::vector<uint64_t> expected;
  constexpr int kSessions = 3;
  for (int i = 0; i < kSessions; ++i) {
    const size_t length = 500 + 90 * i;
    auto single = OpenSelecting(*engine, tiers);
    batched.push_back(OpenSelecting(*engine, tiers));
    for (Session* session : {single.get(), batched.back().get()}) {
      ExpectOk(session->Prefill(std::span(SelectiveText()).first(length)));
    }
    for (int step = 0; step < 20; ++step) ExpectOk(single->Decode(SelectiveText()[1000 + step]));
    expected.push_back(single->logits_hash());
    batch.push_back(batched.back().get());
  }
  for (int step = 0; step < 20; ++step) {
    const std::vector<Token> tokens(kSessions, SelectiveText()[1000 + step]);
    ExpectOk(engine->DecodeBatch(batch, tokens));
  }
  for (int i = 0; i < kSessions; ++i) EXPECT_EQ(batched[i]->logits_hash(), expected[i]) << i;
}

TEST(SelectiveT1, ABatchAgreesWithSingleSteps) {
  EBB_CPU_ONLY("batches have bits of their own on a device");
  ExpectABatchToAgreeWithSingleSteps(Selecting(0.3));
  ExpectABatchToAgreeWithSingleSteps(Reusing(0.3));
}

// Returns how many tokens of a prompt of `common` tokens of the text and `rest` others a session
// takes from `first`. It then has the bits of a session that reads the whole prompt.
size_t ExpectBitsOfTakenPrefix(Engine& engine, const TierSetting& tiers, Session* first,
                               size_t common, ptrdiff_t rest) {
  const auto begin = SelectiveText().begin();
  std::vector<Token> prompt(begin, begin + static_cast<ptrdiff_t>(common));
  prompt.insert(prompt.end(), begin + 900, begin + 900 + rest);
  EXPECT_NE(prompt[common], SelectiveText()[common]);
  auto alone = OpenSelecting(engine, tiers);
  ExpectOk(alone->Prefill(prompt));
  auto sharing = OpenSelecting(engine, tiers);
  const auto taken = BeginPromptFrom(first, prompt, sharing.get());
  ExpectOk(taken.status());
  while (sharing->prompt_left() > 0) {
    SessionStep part[] = {{.session = sharing.get(), .most_prompt_tokens = 100}};
    ExpectOk(engine.Step(part));
  }
  for (Session* session : {alone.get(), sharing.get()}) DecodeText(*session, 0, 150);
  EXPECT_EQ(sharing->logits_hash(), alone->logits_hash()) << common;
  EXPECT_EQ(sharing->accounting().selection.rows_unread, alone->accounting().selection.rows_unread);
  return taken.ok() ? *taken : 0;
}

// Taken prefixes end within a page and at its end, before and behind the first page that is
// summarised. After a short rest the newest pages of the prefix are still those whose keys count.
TEST(SelectiveT1, PromptsTakeEachOthersBeginnings) {
  EBB_CPU_ONLY("prompts after a taken prefix have bits of their own on a device");
  for (const T1Place t1 : {T1Place::kFile, T1Place::kHost, T1Place::kNone}) {
    const TierSetting tiers = Selecting(0.3, t1);
    auto engine = EngineFor(tiers);
    auto first = OpenSelecting(*engine, tiers);
    ExpectOk(first->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
    DecodeText(*first, kSelectivePrompt, 800);
    for (const size_t common : {40, 256, 500, 640, 699}) {
      for (const ptrdiff_t rest : {5, 200}) {
        EXPECT_EQ(ExpectBitsOfTakenPrefix(*engine, tiers, first.get(), common, rest), common);
      }
    }
    ExpectOk(first->TruncateTo(300));
    ExpectOk(first->Prefill(std::span(SelectiveText()).subspan(800, 300)));
    EXPECT_EQ(ExpectBitsOfTakenPrefix(*engine, tiers, first.get(), 500, 200), 300u);
  }
}

TEST(SelectiveT1, SamplesMeasureTheUnreadAttention) {
  EBB_CPU_ONLY("a device takes no samples");
  const auto selection_of = [](double mass) {
    const TierSetting tiers = Selecting(0.3, T1Place::kFile, mass);
    auto engine = EngineFor(tiers);
    auto session = OpenSelecting(*engine, tiers);
    ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
    DecodeText(*session, kSelectivePrompt, kSelectiveLength);
    return session->accounting().selection;
  };
  const SelectionAccounting half = selection_of(0.5), most = selection_of(0.8);
  // Positions 714, 731, ..., 884 are multiples of 17.
  EXPECT_EQ(half.num_samples, 11);
  EXPECT_NEAR(half.sampled_unread_mass, half.unread_mass, 0.1);
  EXPECT_LT(most.sampled_unread_mass, half.sampled_unread_mass);
  EXPECT_GT(most.sampled_unread_mass, 0);
}

TEST(SelectiveT1, ATurnAfterARollBackReadsAllItsRows) {
  const TierSetting tiers = Selecting(0.3, T1Place::kFile, 0.9);
  auto engine = EngineFor(tiers);
  auto session = OpenSelecting(*engine, tiers);
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  DecodeText(*session, kSelectivePrompt, kSelectiveLength);
  ExpectOk(session->TruncateTo(kSelectivePrompt - 150));
  const auto turn = std::span(SelectiveText()).subspan(kSelectivePrompt, 100);
  ExpectOk(session->Prefill(turn));
  DecodeText(*session, 800, 1000);
  EXPECT_TRUE(std::ranges::all_of(Logits(*session), [](float x) { return std::isfinite(x); }));
  EXPECT_EQ(session->accounting().tiers[1].rows % (64 * DeepModel()->shape().NumStreams()), 0);
}

TEST(SelectiveT1, WhatItCannotBeCombinedWithIsRefusedByName) {
  const auto refusal = [](const SessionOptions& options) {
    auto engine = EngineFor(Selecting(0.3));
    const auto session = engine->OpenSession(options);
    EXPECT_FALSE(session.ok());
    return session.ok() ? std::string() : session.status().ToString();
  };
  SessionOptions options;
  options.policy.tiers = Selecting(0.3).shares;
  options.policy.name = "h2o";
  EXPECT_THAT(
      refusal(options),
      HasSubstr("select cannot be combined with scorer \"h2o\": its scores need the attention "
                "to every row"));
  options.policy.name = "full";
  options.policy.scorer = "random";
  EXPECT_THAT(refusal(options), HasSubstr("scorer \"random\" would change nothing"));
  options.policy.scorer.clear();
  options.policy.read = "quest";
  EXPECT_THAT(refusal(options), HasSubstr("both choose the rows that a step reads"));
  options.policy.read.clear();
  options.policy.tiers->t2_share = 0.1;
  EXPECT_THAT(refusal(options), HasSubstr("select cannot be combined with T2 of 10%"));
  options.policy.tiers->t2_share = 0;
  options.policy.tiers->t1_mass = 0;
  EXPECT_THAT(refusal(options), HasSubstr("is 0: expected above 0 and at most 1"));
  options.policy.tiers->t1_mass = 0.9;
  options.policy.tiers->t1_rows = 100;
  EXPECT_THAT(refusal(options), HasSubstr("is 100: expected 0 or at least 384"));
  options.policy.tiers->t1_rows = 0;
  options.policy.tiers->t1_reuse = 1.5;
  EXPECT_THAT(refusal(options), HasSubstr("is 1.5: expected from 0 to 1"));
}

// A lossless session whose drafts select: every verified step reads all rows.
SessionOptions DraftingBySelection(const TierSetting& tiers) {
  SessionOptions options = {.lossless = LosslessOptions{.draft_min = 2, .draft_max = 12}};
  options.policy.tiers = tiers.shares;
  return options;
}

// Guesses the tokens of the text, every sixth wrongly.
Guess MostlyRight(size_t next) {
  return [next](std::span<const float>) mutable -> std::optional<Guessed> {
    const Token token = SelectiveText()[next++];
    return next % 6 == 0 ? (token + 1) % DeepModel()->shape().vocab_size : token;
  };
}

void DraftText(Session& session, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) {
    ExpectOk(session.Decode(SelectiveText()[i], MostlyRight(i + 1)));
  }
}

uint64_t FullHash(size_t length) {
  auto engine = MakeEngineOf(DeepModel(), {.threads = 2});
  auto session = Open(*engine, PolicySpec());
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  DecodeText(*session, kSelectivePrompt, length);
  return session->logits_hash();
}

TEST(SelectiveDrafts, HaveTheBitsOfTheFullCacheAndNoSecondCopyOfARow) {
  EBB_CPU_ONLY("verifying steps of a device have bits of their own");
  const uint64_t expected = FullHash(kSelectiveLength);
  for (const TierSetting& tiers :
       {Selecting(0), Selecting(0.3), Selecting(1), Selecting(0.3, T1Place::kHost),
        Selecting(0.3, T1Place::kNone)}) {
    auto engine = EngineFor(tiers);
    auto session = Open(*engine, DraftingBySelection(tiers));
    ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
    DraftText(*session, kSelectivePrompt, kSelectiveLength);
    EXPECT_EQ(session->logits_hash(), expected);
    const LosslessReport& report = *session->lossless_report();
    EXPECT_GT(report.accepted, 60);
    EXPECT_LT(report.accepted, report.drafted);
    const CacheAccounting sum = session->accounting();
    const ModelShape& shape = DeepModel()->shape();
    int64_t rows = 0;
    for (const TierAccounting& tier : sum.tiers) rows += tier.rows;
    // Up to 11 drafted tokens are ahead of the text.
    EXPECT_GE(rows, static_cast<int64_t>(kSelectiveLength) * shape.NumStreams());
    EXPECT_LT(rows, static_cast<int64_t>(kSelectiveLength + 12) * shape.NumStreams());
    EXPECT_GT(sum.selection.rows_unread, 0);
    // The report counts draft steps only: verifying steps read all rows.
    EXPECT_LT(sum.selection.rows_read, 4 * sum.selection.rows_unread);
  }
}

TEST(SelectiveDrafts, ReadPagesThatAreCachedFromMemory) {
  EBB_CPU_ONLY("verifying steps of a device have bits of their own");
  const auto bytes_read = [](double t0_share) {
    const TierSetting tiers = Selecting(t0_share);
    auto engine = EngineFor(tiers);
    auto session = Open(*engine, DraftingBySelection(tiers));
    ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
    DraftText(*session, kSelectivePrompt, kSelectivePrompt + 100);
    return session->lossless_report()->bytes_read;
  };
  EXPECT_LT(bytes_read(1), bytes_read(0) / 2);
}

TEST(SelectiveDrafts, ParkForkRollBackAndFilesChangeNoBit) {
  EBB_CPU_ONLY("verifying steps of a device have bits of their own");
  const TierSetting tiers = Selecting(0.3);
  constexpr size_t kHalf = kSelectivePrompt + 97;
  auto engine = EngineFor(tiers);
  auto session = Open(*engine, DraftingBySelection(tiers));
  ExpectOk(session->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  DraftText(*session, kSelectivePrompt, kHalf + 20);
  ExpectOk(session->TruncateTo(static_cast<Position>(kHalf)));
  ExpectOk(session->Park());
  ExpectOk(session->Decode(SelectiveText()[kHalf]));
  auto fork = session->Fork();
  ExpectOk(fork.status());
  const TempFolder folder;
  ExpectOk(SaveSession(*session, folder.File("session")));
  auto resumed = ResumeSession(*engine, folder.File("session"), DraftingBySelection(tiers));
  ExpectOk(resumed.status());
  auto full_engine = MakeEngineOf(DeepModel(), {.threads = 2});
  auto full = Open(*full_engine, PolicySpec());
  ExpectOk(full->Prefill(std::span(SelectiveText()).first(kSelectivePrompt)));
  DecodeText(*full, kSelectivePrompt, kSelectiveLength);
  for (Session* one : {session.get(), fork->get(), resumed->session.get()}) {
    DraftText(*one, kHalf + 1, kSelectiveLength);
    EXPECT_EQ(Logits(*one), Logits(*full));
  }
}

}  // namespace
}  // namespace ebb
