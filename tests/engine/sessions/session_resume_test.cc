// A session that was saved and resumed goes on as if nothing had happened.
#include <functional>
#include <ostream>

#include "tests/engine/sessions/session_cases.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr int kPromptTokens = 40;
constexpr int kDecodeTokens = 200;

const std::vector<Token>& Text() {
  static const std::vector<Token> kText = SomeTokens(kPromptTokens + kDecodeTokens);
  return kText;
}

std::vector<SessionCase> ResumeCases() {
  std::vector<SessionCase> cases;
  const auto add = [&](const std::string& name, const TieredPolicy& policy) {
    AddCases(name, policy, &cases);
  };
  add("full", SmallPolicy("full", ""));
  for (const char* name : {"streaming", "h2o", "attention", "random", "recency"}) {
    add(name, SmallPolicy(name, name == std::string("attention") ? "96" : "30%"));
  }
  PolicySpec control = SmallPolicy("h2o", "48");
  control.scorer = "random";
  control.seed = 3;
  add("h2o_by_random", control);
  add("t1_host", Tiered({.engine = {.t1 = T1Place::kHost}, .shares = {.t0_share = 0.4}}));
  add("t1_file", Tiered({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.4}}));
  add("t1_file_evict",
      Tiered({.engine = {.t1 = T1Place::kFile}, .shares = {.t0_share = 0.3, .evict_share = 0.1}}));
  add("t2_int8", Tiered({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                         .shares = {.t0_share = 0.5, .t2_share = 0.4}},
                        "h2o"));
  add("t2_int8_naive",
      Tiered({.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8Naive},
              .shares = {.t0_share = 0.5, .t2_share = 0.4}}));
  add("t2_int4", Tiered({.engine = {.t1 = T1Place::kFile, .t2_type = CompressedType::kInt4},
                         .shares = {.t0_share = 0.5,
                                    .t2_share = 0.5,
                                    .evict_share = 0.1,
                                    .evict_of = EvictOf::kAlive}}));
  add("t2_alone", Tiered({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
                          .shares = {.t2_share = 0.7}},
                         "random"));
  return cases;
}

void Decode(Session& session, int from, int to) {
  for (int i = from; i < to; ++i) ExpectOk(session.Decode(Text()[kPromptTokens + i]));
}

void ExpectSame(const Session& a, const Session& b) {
  EXPECT_EQ(a.logits_hash(), b.logits_hash());
  EXPECT_EQ(Logits(a), Logits(b));
  EXPECT_TRUE(std::ranges::equal(a.tokens(), b.tokens()));
  const CacheAccounting x = a.accounting(), y = b.accounting();
  EXPECT_EQ(x.rows_evicted, y.rows_evicted);
  EXPECT_EQ(x.moves.rows_down, y.moves.rows_down);
  EXPECT_EQ(x.moves.bytes_up, y.moves.bytes_up);
  for (int tier = 0; tier < kNumTiers; ++tier) {
    EXPECT_EQ(x.tiers[tier].rows, y.tiers[tier].rows) << tier;
    EXPECT_EQ(x.tiers[tier].page_bytes, y.tiers[tier].page_bytes) << tier;
  }
}

class SessionResume : public testing::TestWithParam<SessionCase> {
 protected:
  void SetUp() override {
    const auto engine = Engine::Create(SmallModel(), EngineOptionsFor(GetParam().tiers));
    if (engine.status().code() == StatusCode::kUnsupported) {
      EBB_SKIP_WITHOUT("direct_io") << engine.status().message();  // a disk without direct reads
    }
  }
  TempFolder folder_;
  const std::string path_ = folder_.File("session");
};

TEST_P(SessionResume, GoesOnBitForBit) {
  const SessionOptions& options = GetParam().options;
  OwnSession whole = OpenOwn(options, GetParam().tiers);
  OwnSession parts = OpenOwn(options, GetParam().tiers);
  for (OwnSession* own : {&whole, &parts}) {
    ExpectOk(own->session->Prefill(std::span(Text()).first(kPromptTokens)));
  }
  // In the middle of an interval, at its end, and twice without a step in between.
  int at = 0;
  for (const int next : {3, 99, 104, 104, 137}) {
    Decode(*whole.session, at, next);
    Decode(*parts.session, at, next);
    at = next;
    ExpectOk(SaveSession(*parts.session, path_, "mine"));
    auto resumed = ResumeOwn(path_, options, GetParam().tiers);
    ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
    EXPECT_EQ(resumed->extra, "mine");
    ExpectSame(*whole.session, *resumed->session);
    parts.session.reset();
    parts = *std::move(resumed);
  }
  Decode(*whole.session, at, kDecodeTokens);
  Decode(*parts.session, at, kDecodeTokens);
  ExpectSame(*whole.session, *parts.session);
  for (OwnSession* own : {&whole, &parts}) ExpectOk(own->session->Prefill(SomeTokens(30, 5)));
  ExpectSame(*whole.session, *parts.session);
}

TEST_P(SessionResume, SavingChangesNothing) {
  const SessionOptions& options = GetParam().options;
  OwnSession quiet = OpenOwn(options, GetParam().tiers);
  OwnSession saving = OpenOwn(options, GetParam().tiers);
  for (OwnSession* own : {&quiet, &saving}) {
    ExpectOk(own->session->Prefill(std::span(Text()).first(kPromptTokens)));
    for (int i = 0; i < 60; ++i) {
      Decode(*own->session, i, i + 1);
      if (own == &saving && i % 7 == 0) ExpectOk(SaveSession(*own->session, path_));
    }
  }
  ExpectSame(*quiet.session, *saving.session);
}

TEST_P(SessionResume, ARollBackGoesOnAsItWouldHave) {
  const SessionOptions& options = GetParam().options;
  OwnSession whole = OpenOwn(options, GetParam().tiers);
  ExpectOk(whole.session->Prefill(std::span(Text()).first(kPromptTokens)));
  Decode(*whole.session, 0, 70);
  ExpectOk(whole.session->TruncateTo(kPromptTokens + 30));
  ExpectOk(SaveSession(*whole.session, path_));
  auto resumed = ResumeOwn(path_, options, GetParam().tiers);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  EXPECT_TRUE(resumed->session->logits().empty());
  for (Session* session : {whole.session.get(), resumed->session.get()}) {
    Decode(*session, 30, 80);
    ExpectOk(session->TruncateTo(kPromptTokens + 60));
    Decode(*session, 60, 90);
  }
  ExpectSame(*whole.session, *resumed->session);
}

INSTANTIATE_TEST_SUITE_P(Settings, SessionResume, testing::ValuesIn(ResumeCases()),
                         [](const auto& info) { return info.param.name; });

TEST(SessionFile, AnEmptySessionComesBack) {
  const TempFolder folder;
  OwnSession fresh = OpenOwn({});
  ExpectOk(SaveSession(*fresh.session, folder.File("s")));
  auto resumed = ResumeOwn(folder.File("s"), {});
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* session : {fresh.session.get(), resumed->session.get()}) {
    ExpectOk(session->Prefill(std::span(Text()).first(10)));
  }
  ExpectSame(*fresh.session, *resumed->session);
}

// A session of 120 decoded tokens and the one that resumes it, behind what go_on does to each.
void ExpectGoOnBitForBit(const SessionOptions& options,
                         const std::function<void(Session&)>& go_on) {
  const TempFolder folder;
  OwnSession whole = OpenOwn(options);
  ExpectOk(whole.session->Prefill(std::span(Text()).first(kPromptTokens)));
  Decode(*whole.session, 0, 120);
  ExpectOk(SaveSession(*whole.session, folder.File("s")));
  auto resumed = ResumeOwn(folder.File("s"), options);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  for (Session* session : {whole.session.get(), resumed->session.get()}) {
    Decode(*session, 120, 150);
    go_on(*session);
  }
  ExpectSame(*whole.session, *resumed->session);
}

TEST(SessionFile, KeysThatWereRotatedAnewGoOnBitForBit) {
  SessionOptions options;
  options.policy = SmallPolicy("streaming", "64");
  options.context = 96;
  options.past_context = PastContext::kReRotate;
  ExpectGoOnBitForBit(options, [](Session& session) {
    ExpectOk(session.TruncateTo(kPromptTokens + 140));
    Decode(session, 140, kDecodeTokens);
  });
}

TEST(SessionFile, SinksThatTurnWithTheirWindowGoOnBitForBit) {
  SessionOptions options;
  options.policy = SmallPolicy("streaming_rerotated", "64");
  options.policy.interval = 8;
  options.context = 256;
  ExpectGoOnBitForBit(options, [](Session& session) {
    ExpectOk(session.TruncateTo(2));
    Decode(session, 0, 100);
  });
}

TEST(SessionFile, KeysThatMayTurnFitAContextThatTheirRowsFit) {
  const TempFolder folder;
  SessionOptions options;
  options.policy = SmallPolicy("streaming_rerotated", "64");
  options.policy.interval = 8;
  OwnSession own = OpenOwn(options);
  ExpectOk(own.session->Prefill(std::span(Text()).first(kPromptTokens)));
  Decode(*own.session, 0, 150);
  ExpectOk(SaveSession(*own.session, folder.File("s")));
  options.context = 80;
  auto resumed = ResumeOwn(folder.File("s"), options);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  Decode(*resumed->session, 150, kDecodeTokens);
  options.context = 60;
  const Status refused = ResumeOwn(folder.File("s"), options).status();
  EXPECT_NE(refused.message().find("expected at most 60 tokens, found 70"), std::string::npos)
      << refused.ToString();
}

// After a roll-back groups differ in length; the shorter ones are then turned up to the end of the
// longest, past their positions. What a second roll-back leaves may be nothing else.
TEST(SessionFile, RowsThatWereTurnedPastTheirPositionsComeBack) {
  const TempFolder folder;
  SessionOptions options;
  options.policy = {.name = "random", .granularity = Granularity::kHead};
  options.policy.budget = *ParseBudget("60");
  options.policy.sinks = 2;
  options.policy.window = 4;
  options.policy.interval = 1;
  options.context = 62;
  options.past_context = PastContext::kReRotate;
  OwnSession whole = OpenOwn(options);
  ExpectOk(whole.session->Prefill(std::span(Text()).first(8)));
  Decode(*whole.session, 0, 180);
  ExpectOk(whole.session->TruncateTo(whole.session->next_position() - 70));
  for (int i = 0; i < 60; ++i) {
    Decode(*whole.session, i, i + 1);
    ExpectOk(SaveSession(*whole.session, folder.File("before")));
    auto short_one = ResumeOwn(folder.File("before"), options);
    ASSERT_TRUE(short_one.ok()) << i << " " << short_one.status().ToString();
    ExpectOk(short_one->session->TruncateTo(2));
    ExpectOk(SaveSession(*short_one->session, folder.File("s")));
    auto resumed = ResumeOwn(folder.File("s"), options);
    ASSERT_TRUE(resumed.ok()) << i << " " << resumed.status().ToString();
    for (OwnSession* own : {&*short_one, &*resumed}) Decode(*own->session, 0, 2);
    ExpectSame(*short_one->session, *resumed->session);
  }
}

TEST(SessionFile, ALargerContextMayBeAskedForASmallerOneMayNot) {
  const TempFolder folder;
  SessionOptions options;
  options.context = 64;
  OwnSession own = OpenOwn(options);
  ExpectOk(own.session->Prefill(std::span(Text()).first(60)));
  ExpectOk(SaveSession(*own.session, folder.File("s")));
  options.context = 59;
  EXPECT_EQ(ResumeOwn(folder.File("s"), options).status().message(),
            folder.File("s") +
                ": a session longer than the context: expected at most 59 tokens, found 60");
  options.context = 128;
  auto resumed = ResumeOwn(folder.File("s"), options);
  ASSERT_TRUE(resumed.ok()) << resumed.status().ToString();
  ExpectOk(resumed->session->Prefill(std::span(Text()).first(60)));
}

TEST(SessionFile, ReadsItsTiersBeforeThereIsAnEngine) {
  const TempFolder folder;
  const TierSetting tiers = {
      .engine = {.t1 = T1Place::kHost, .t1_cap_bytes = 64 << 20, .t2_type = CompressedType::kInt4},
      .shares = {
          .t0_share = 0.25, .t2_share = 0.5, .evict_share = 0.125, .evict_of = EvictOf::kAlive}};
  OwnSession own = OpenOwn({.policy = Tiered(tiers)}, tiers.engine);
  ExpectOk(SaveSession(*own.session, folder.File("s")));
  const auto info = ReadSessionInfo(folder.File("s"));
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  ASSERT_TRUE(info->tiers.has_value());
  EXPECT_EQ(info->tiers->shares.t0_share, 0.25);
  EXPECT_EQ(info->tiers->engine.t1, T1Place::kHost);
  EXPECT_EQ(info->tiers->engine.t1_cap_bytes, uint64_t{64} << 20);
  EXPECT_EQ(info->tiers->shares.t2_share, 0.5);
  EXPECT_EQ(info->tiers->engine.t2_type, CompressedType::kInt4);
  EXPECT_EQ(info->tiers->shares.evict_share, 0.125);
  EXPECT_EQ(info->tiers->shares.evict_of, EvictOf::kAlive);
  OwnSession plain = OpenOwn({});
  ExpectOk(SaveSession(*plain.session, folder.File("p")));
  EXPECT_FALSE(ReadSessionInfo(folder.File("p"))->tiers.has_value());
  EXPECT_EQ(ReadSessionInfo(folder.File("none")).status().code(), StatusCode::kNotFound);
}

// A policy of somebody else that does not say how it is saved.
class ForgetfulScorer final : public Scorer {
 public:
  std::string Name() const override { return "forgetful"; }
  SignalNeeds Needs() const override { return {}; }
  void Append(int, std::span<const Position> positions) override {
    scores_.resize(scores_.size() + positions.size());
  }
  void Retain(int, std::span<const uint32_t> kept) override { scores_.resize(kept.size()); }
  std::span<const float> Scores(int) override { return scores_; }

 private:
  std::vector<float> scores_;
};

TEST(SessionFile, APolicyThatCannotBeSavedIsNamedAndTheOldFileStays) {
  const TempFolder folder;
  WriteFileBytes(folder.File("s"), "old");
  SessionOptions options;
  options.make_policy = [](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy(SmallPolicy("attention", "96"), context));
    policy.scorer = std::make_unique<ForgetfulScorer>();
    return policy;
  };
  OwnSession own = OpenOwn(options);
  const Status status = SaveSession(*own.session, folder.File("s"));
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_EQ(status.message(), "scorer \"forgetful\" cannot be saved to a file");
  EXPECT_EQ(ReadFileBytes(folder.File("s")), "old");
}

}  // namespace
}  // namespace ebb
