// Tests selective reading of T1 on a backend's device: pages of T1, in pinned memory or in a file,
// are loaded into the device's memory as selectors choose them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ebb/generate.h"
#include "ebb/session_file.h"
#include "tests/engine/devices/backend_fixture.h"
#include "tests/support/device/sim_backend.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it opens devices of its own");

constexpr size_t kSelectivePrompt = 600;
constexpr size_t kSelectiveLength = 680;

using BackendSelectiveTest = ByAttention;
INSTANTIATE_TEST_SUITE_P(Attention, BackendSelectiveTest, testing::Values("auto", "flash"),
                         ByAttention::Name);

std::shared_ptr<const Model> SelectiveModel() {
  static const std::shared_ptr<const Model> kModel = [] {
    RandomGgufOptions shape = SmallModelOptions();
    shape.num_layers = 4;
    return ForDevice(shape);
  }();
  return kModel;
}

std::span<const Token> SelectiveText() {
  static const std::vector<Token> kText = SomeTokens(kSelectiveLength);
  return kText;
}

TierSetting Selecting(double t0_share, T1Place t1 = T1Place::kHost) {
  return {.engine = {.t1 = t1},
          .shares = {.t0_share = t0_share, .t1_read = T1Read::kSelect, .t1_mass = 0.5}};
}

std::unique_ptr<Engine> SelectiveEngine(const TierSetting& tiers, bool on_device = true) {
  EngineOptions options = {.threads = 2, .tiers = tiers.engine};
  if (on_device) options.device = *ParseDevice(ByAttention::device());
  return MakeEngineOf(SelectiveModel(), options);
}

SessionOptions SelectiveSession(const TierSetting& tiers) {
  SessionOptions options;
  options.policy.tiers = tiers.shares;
  return options;
}

std::unique_ptr<Session> OpenAfterPrompt(Engine& engine, const TierSetting& tiers) {
  auto session = engine.OpenSession(SelectiveSession(tiers));
  ExpectOk(session.status());
  ExpectOk((*session)->Prefill(SelectiveText().first(kSelectivePrompt)));
  return std::move(*session);
}

void DecodeText(Session& session, size_t from, size_t to) {
  for (size_t i = from; i < to; ++i) ExpectOk(session.Decode(SelectiveText()[i]));
}

struct SelectiveOutcome {
  uint64_t logits_hash = 0;
  int64_t rows_unread = 0;
};

SelectiveOutcome RunSelecting(const TierSetting& tiers) {
  auto engine = SelectiveEngine(tiers);
  auto session = OpenAfterPrompt(*engine, tiers);
  SelectiveOutcome outcome;
  for (size_t i = kSelectivePrompt; i < kSelectiveLength; ++i) {
    ExpectOk(session->Decode(SelectiveText()[i]));
    outcome.rows_unread += session->last_step().rows_unread;
  }
  outcome.logits_hash = session->logits_hash();
  return outcome;
}

TEST_P(BackendSelectiveTest, NeitherT0sShareNorT1sPlaceChangesABit) {
  for (const double reuse : {0.0, 1e-6}) {
    TierSetting tiers = Selecting(0);
    tiers.shares.t1_reuse = reuse;
    const SelectiveOutcome expected = RunSelecting(tiers);
    EXPECT_GT(expected.rows_unread, 0);
    const auto expect_the_same = [&](double share, T1Place t1, uint64_t cap = 0) {
      tiers.shares.t0_share = share;
      tiers.engine.t1 = t1;
      tiers.engine.t0_cap_bytes = cap;
      if (cap > 0) tiers.shares.t0_share.reset();
      const SelectiveOutcome outcome = RunSelecting(tiers);
      EXPECT_EQ(outcome.logits_hash, expected.logits_hash) << share << ' ' << static_cast<int>(t1);
      EXPECT_EQ(outcome.rows_unread, expected.rows_unread);
    };
    expect_the_same(0.2, T1Place::kHost);
    expect_the_same(1, T1Place::kHost);
    expect_the_same(1, T1Place::kHost, /*cap=*/uint64_t{4} << 20);
    expect_the_same(0.2, T1Place::kFile);
    expect_the_same(0.3, T1Place::kNone);
  }
}

TEST_P(BackendSelectiveTest, AllMassHasTheBitsOfTheFullCache) {
  TierSetting tiers = Selecting(0.3);
  tiers.shares.t1_mass = 1;
  const SelectiveOutcome all = RunSelecting(tiers);
  EXPECT_EQ(all.rows_unread, 0);
  EXPECT_EQ(
      all.logits_hash,
      RunSelecting({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.3}}).logits_hash);
}

TEST_P(BackendSelectiveTest, LoadsOnlyThePagesThatAreChosenAndNotCached) {
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    const auto share_loaded = [t1](double t0_share) {
      const TierSetting tiers = Selecting(t0_share, t1);
      auto engine = SelectiveEngine(tiers);
      auto session = OpenAfterPrompt(*engine, tiers);
      size_t loaded = 0, in_t1 = 0;
      for (size_t i = kSelectivePrompt; i < kSelectiveLength; ++i) {
        ExpectOk(session->Decode(SelectiveText()[i]));
        loaded += session->last_step().t1_bytes_read;
        in_t1 += session->accounting().tiers[static_cast<int>(Tier::kT1)].page_bytes;
      }
      return static_cast<double>(loaded) / static_cast<double>(in_t1);
    };
    const double without = share_loaded(0), cached = share_loaded(1);
    EXPECT_LT(without, 0.8);
    EXPECT_LT(cached, without / 4);
    EXPECT_GT(cached, 0);
  }
}

// The choices of a device and of a processor differ where rounding decides.
TEST_P(BackendSelectiveTest, AgreesWithTheProcessorUpToRounding) {
  const TierSetting tiers = Selecting(0.3);
  auto device = SelectiveEngine(tiers), host = SelectiveEngine(tiers, /*on_device=*/false);
  auto session = OpenAfterPrompt(*device, tiers), expected = OpenAfterPrompt(*host, tiers);
  auto all =
      OpenAfterPrompt(*device, {.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 1}});
  double sum = 0, sum_of_all = 0;
  for (size_t i = kSelectivePrompt; i < kSelectiveLength; ++i) {
    for (Session* one : {session.get(), expected.get(), all.get()}) {
      ExpectOk(one->Decode(SelectiveText()[i]));
    }
    sum += LargestDifference(Logits(*session), Logits(*expected));
    sum_of_all += LargestDifference(Logits(*all), Logits(*expected));
  }
  EXPECT_LT(sum, sum_of_all / 4);
  const auto unread = [](const Session& one) {
    return static_cast<double>(one.accounting().selection.rows_unread);
  };
  EXPECT_NEAR(unread(*session) / unread(*expected), 1, 0.01);
}

TEST_P(BackendSelectiveTest, ParkedForkedSavedAndResumedSessionsGoOnAsBefore) {
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    TierSetting tiers = Selecting(0.3, t1);
    tiers.shares.t1_reuse = 1e-6;
    const uint64_t expected = RunSelecting(tiers).logits_hash;
    auto engine = SelectiveEngine(tiers);
    auto session = OpenAfterPrompt(*engine, tiers);
    DecodeText(*session, kSelectivePrompt, 630);
    auto fork = session->Fork();
    ExpectOk(fork.status());
    ExpectOk(session->Park());
    DecodeText(*session, 630, 660);
    ExpectOk(session->SetT0Share(0.8));
    const TempFolder folder;
    ExpectOk(SaveSession(*session, folder.File("session")));
    auto resumed = ResumeSession(*engine, folder.File("session"), SelectiveSession(tiers));
    ExpectOk(resumed.status());
    DecodeText(*session, 660, kSelectiveLength);
    DecodeText(**fork, 630, kSelectiveLength);
    DecodeText(*resumed->session, 660, kSelectiveLength);
    for (Session* one : {session.get(), fork->get(), resumed->session.get()}) {
      EXPECT_EQ(one->logits_hash(), expected);
    }
  }
}

// A roll-back ends within a page of T1 that is cached, and later rows complete that page.
TEST_P(BackendSelectiveTest, APageThatIsCompletedAfterARollBackIsLoadedAgain) {
  const auto hash_of = [](const TierSetting& tiers) {
    auto engine = SelectiveEngine(tiers);
    auto session = OpenAfterPrompt(*engine, tiers);
    DecodeText(*session, kSelectivePrompt, kSelectiveLength);
    ExpectOk(session->TruncateTo(400));
    DecodeText(*session, 100, 400);
    return session->logits_hash();
  };
  const uint64_t expected = hash_of(Selecting(0));
  EXPECT_EQ(hash_of(Selecting(1)), expected);
  EXPECT_EQ(hash_of(Selecting(0.5, T1Place::kFile)), expected);
  EXPECT_EQ(hash_of(Selecting(0.5, T1Place::kNone)), expected);
}

TEST_P(BackendSelectiveTest, ABatchReadsAsManyRowsAsSingleSteps) {
  const TierSetting tiers = Selecting(0.3);
  auto engine = SelectiveEngine(tiers);
  std::vector<std::unique_ptr<Session>> sessions, alone;
  for (int i = 0; i < 3; ++i) {
    for (auto* list : {&sessions, &alone}) {
      list->push_back(*engine->OpenSession(SelectiveSession(tiers)));
      // Texts of their own, of other lengths.
      ExpectOk(list->back()->Prefill(SomeTokens(kSelectivePrompt + 20 * i, 7 + i)));
    }
  }
  for (size_t i = kSelectivePrompt; i < 640; ++i) {
    // The order of a batch changes, and sessions step alone in turns.
    std::vector<Session*> batch;
    for (size_t at = 0; at < 3; ++at) batch.push_back(sessions[(at + i) % 3].get());
    ExpectOk(engine->DecodeBatch(batch, std::vector<Token>(3, SelectiveText()[i])));
    for (const auto& each : alone) ExpectOk(each->Decode(SelectiveText()[i]));
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LT(LargestDifference(Logits(*sessions[i]), Logits(*alone[i])), 2 * kFlashError);
    const auto unread = static_cast<double>(alone[i]->accounting().selection.rows_unread);
    EXPECT_GT(unread, 1000);
    EXPECT_NEAR(sessions[i]->accounting().selection.rows_unread / unread, 1, 0.01);
  }
}

// A prefix is taken with its summaries; the keys of its newest pages are read from the device.
TEST_P(BackendSelectiveTest, APrefixOfAnotherSessionIsReadAsIfItWereItsOwn) {
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile, T1Place::kNone}) {
    const TierSetting tiers = Selecting(0.3, t1);
    auto engine = SelectiveEngine(tiers);
    auto first = OpenAfterPrompt(*engine, tiers);
    std::vector<Token> prompt(SelectiveText().begin(), SelectiveText().begin() + 500);
    for (int i = 0; i < 60; ++i) prompt.push_back(SelectiveText()[600 + i]);
    auto alone = *engine->OpenSession(SelectiveSession(tiers));
    ExpectOk(alone->Prefill(prompt));
    auto sharing = *engine->OpenSession(SelectiveSession(tiers));
    const Result<size_t> taken = BeginPromptFrom(first.get(), prompt, sharing.get());
    ExpectOk(taken.status());
    EXPECT_EQ(*taken, 500u);
    while (sharing->prompt_left() > 0) {
      SessionStep part[] = {{.session = sharing.get(), .most_prompt_tokens = 100}};
      ExpectOk(engine->Step(part));
    }
    for (Session* session : {alone.get(), sharing.get()}) DecodeText(*session, 0, 40);
    EXPECT_LT(LargestDifference(Logits(*sharing), Logits(*alone)), 2 * kFlashError);
    const auto unread = static_cast<double>(alone->accounting().selection.rows_unread);
    EXPECT_GT(unread, 0);
    EXPECT_NEAR(sharing->accounting().selection.rows_unread / unread, 1, 0.01);
  }
}

TEST_P(BackendSelectiveTest, DraftsThatSelectAreVerifiedOverAllRows) {
  auto full_engine = SelectiveEngine({.engine = {.t1 = T1Place::kNone}, .shares = {.t0_share = 1}});
  auto full =
      OpenAfterPrompt(*full_engine, {.engine = {.t1 = T1Place::kNone}, .shares = {.t0_share = 1}});
  DecodeText(*full, kSelectivePrompt, 640);
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    const TierSetting tiers = Selecting(0.3, t1);
    auto engine = SelectiveEngine(tiers);
    SessionOptions options = SelectiveSession(tiers);
    options.lossless =
        LosslessOptions{.verify = LosslessOptions::Verify::kFast, .draft_min = 2, .draft_max = 12};
    auto session = *engine->OpenSession(options);
    ExpectOk(session->Prefill(SelectiveText().first(kSelectivePrompt)));
    for (size_t i = kSelectivePrompt; i < 640; ++i) {
      size_t next = i + 1;
      ExpectOk(session->Decode(SelectiveText()[i], [next](std::span<const float>) mutable {
        return std::optional<Guessed>(SelectiveText()[next++ % kSelectiveLength]);
      }));
    }
    EXPECT_LT(LargestDifference(Logits(*session), Logits(*full)), 2 * kFlashError);
    EXPECT_GT(session->lossless_report()->accepted, 20);
    EXPECT_GT(session->accounting().selection.rows_unread, 0);
  }
}

// Work that fails at each place of a step: pages may be on their way to the device then.
TEST_P(BackendSelectiveTest, AStepThatFailsLosesTheDeviceAndNothingElse) {
  if (!IsSimulated()) GTEST_SKIP() << "its faults are the simulated device's";
  for (const T1Place t1 : {T1Place::kHost, T1Place::kFile}) {
    for (const SimBackendWork work : {SimBackendWork::kCopy, SimBackendWork::kCompute}) {
      for (int place = 0; place < 5; ++place) {
        TierSetting tiers = Selecting(0, t1);
        tiers.shares.t1_reuse = 1e-6;
        auto engine = SelectiveEngine(tiers);
        auto session = OpenAfterPrompt(*engine, tiers);
        DecodeText(*session, kSelectivePrompt, 604);
        int left = place;
        SetSimBackendFaults([&](SimBackendWork asked) { return asked == work && left-- <= 0; });
        EXPECT_FALSE(session->Decode(SelectiveText()[604]).ok());
        SetSimBackendFaults({});
        EXPECT_FALSE(session->Decode(SelectiveText()[604]).ok());
      }
    }
  }
}

// The cache of pages takes what rows leave of the device's memory.
TEST_P(BackendSelectiveTest, FewerPagesAreCachedWhereTheDeviceHasNoMemoryForMore) {
  if (!IsSimulated()) GTEST_SKIP() << "its faults are the simulated device's";
  const TierSetting tiers = Selecting(1);
  const auto run = [&](const std::string& device) {
    EngineOptions options = {.threads = 2, .tiers = tiers.engine};
    options.device = *ParseDevice(device);
    auto engine = MakeEngineOf(SelectiveModel(), options);
    auto session = OpenAfterPrompt(*engine, tiers);
    DecodeText(*session, kSelectivePrompt, kSelectiveLength);
    return std::pair(session->logits_hash(), session->accounting().staging_bytes);
  };
  const auto [hash, bytes] = run(ByAttention::device());
  const auto [hash_under_limit, bytes_under_limit] = run(ByAttention::device() + ",memory=7MiB");
  EXPECT_EQ(hash_under_limit, hash);
  EXPECT_LT(bytes_under_limit, bytes);
}

}  // namespace
}  // namespace ebb
