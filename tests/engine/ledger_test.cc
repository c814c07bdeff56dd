// The ledger against the cache itself, after placements that draw lots.
#include <algorithm>
#include <random>
#include <tuple>

#include "src/session/session_impl.h"
#include "tests/engine/sessions/session_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

// Every third step sends a tenth of the rows anywhere; the last row stays.
class RandomPlacement : public Placement {
 public:
  std::string Name() const override { return "random"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput& input, size_t) const override {
    return input.next_position % 3 == 0;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    for (uint32_t row = 0; row + 1 < input.positions.size(); ++row) {
      if (random_() % 10 != 0) continue;
      moves->push_back({row, static_cast<Tier>(random_() % 7 / 2)});
    }
  }

 private:
  std::mt19937 random_{11};
};

// Sends every row to T1 in the step after the prompt.
class SinkingPlacement : public Placement {
 public:
  std::string Name() const override { return "sinking"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput& input, size_t) const override {
    return input.step_kind == StepKind::kDecode;
  }
  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    for (uint32_t row = 0; row < input.positions.size(); ++row) {
      moves->push_back({row, Tier::kT1});
    }
  }
};

template <typename AnyPlacement = RandomPlacement>
SessionOptions Moves(Granularity granularity) {
  SessionOptions options;
  options.ledger = SessionOptions::Record::kYes;
  options.make_policy = [granularity](const PolicyContext& context) -> Result<Policy> {
    EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({.granularity = granularity}, context));
    policy.name = "random moves";
    policy.placement = std::make_unique<AnyPlacement>();
    return policy;
  };
  return options;
}

void ExpectAgrees(Session& session) {
  const Ledger& ledger = *session.ledger();
  SequenceCache& cache = Internals::SequenceOf(session).cache();
  ASSERT_EQ(ledger.next_position(), session.next_position());
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    std::vector<Tier> expected(session.next_position(), Tier::kT3);
    const std::span<const Tier> tiers = cache.tiers(group);
    for (size_t row = 0; row < tiers.size(); ++row) {
      expected[cache.positions(group)[row]] = tiers[row];
    }
    const std::span<const Tier> found = ledger.tiers(group);
    ASSERT_TRUE(std::ranges::equal(found, expected)) << "group " << group;
  }
  const CacheAccounting accounting = session.accounting();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    EXPECT_EQ(ledger.rows(tier), accounting.tiers[static_cast<size_t>(tier)].rows);
  }
  EXPECT_EQ(accounting.ledger_bytes, ledger.memory_bytes());
}

class LedgerAgainstCache : public testing::TestWithParam<Granularity> {
 protected:
  LedgerAgainstCache() {
    const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                               .shares = {.t2_share = 0.5}};
    engine_ = MakeEngine({.threads = 1, .tiers = tiers.engine});
    session_ = Open(*engine_, Moves(GetParam()));
  }
  void Decode(int steps) {
    for (int i = 0; i < steps; ++i) {
      ExpectOk(session_->Decode(static_cast<Token>(i % 7 + 1)));
      ExpectAgrees(*session_);
    }
  }

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Session> session_;
};

TEST_P(LedgerAgainstCache, TheyAgreeAfterEveryStep) {
  ExpectOk(session_->Prefill(SomeTokens(90)));
  Decode(40);
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2, Tier::kT3}) {
    EXPECT_GT(session_->ledger()->rows(tier), 0) << TierName(tier);
  }
  EXPECT_EQ(session_->ledger()->rows(Tier::kT3), session_->accounting().rows_evicted);
}

TEST_P(LedgerAgainstCache, TheyAgreeAfterRollingBack) {
  ExpectOk(session_->Prefill(SomeTokens(60)));
  Decode(20);
  ExpectOk(session_->TruncateTo(50));
  ExpectAgrees(*session_);
  Decode(20);
  ExpectOk(session_->Prefill(SomeTokens(30, 3)));
  ExpectAgrees(*session_);
}

TEST_P(LedgerAgainstCache, AStepThatIsRefusedLeavesNoTrace) {
  ExpectOk(session_->Prefill(SomeTokens(60)));
  Decode(5);
  const uint64_t changes = session_->ledger()->num_changes();
  EXPECT_FALSE(session_->Decode(-1).ok());
  EXPECT_FALSE(session_->Prefill(SomeTokens(4000)).ok());
  EXPECT_EQ(session_->ledger()->num_changes(), changes);
}

TEST_P(LedgerAgainstCache, RowsByStepEndWithWhatIs) {
  ExpectOk(session_->Prefill(SomeTokens(60)));
  Decode(15);
  ExpectOk(session_->TruncateTo(66));
  Decode(10);
  const auto by_step = session_->ledger()->RowsByStep();
  ASSERT_EQ(by_step.size(), 26u);
  for (size_t tier = 0; tier < kNumTiers; ++tier) {
    EXPECT_EQ(by_step.back()[tier], session_->ledger()->rows(static_cast<Tier>(tier)));
  }
}

TEST_P(LedgerAgainstCache, ExplanationsFollowTheTokenThroughTheTiers) {
  constexpr Position kToken = 17;
  SessionOptions options = Moves(GetParam());
  options.explained = kToken;
  session_ = Open(*engine_, options);
  ExpectOk(session_->Prefill(SomeTokens(90)));
  EXPECT_GT(session_->explanations().size(), 0u);
  Decode(40);
  const Ledger& ledger = *session_->ledger();
  for (int group = 0; group < ledger.num_groups(); ++group) {
    std::vector<Tier> moves, explained;
    for (const LedgerEvent& event : ledger.History(group, kToken)) {
      if (event.kind == LedgerEvent::Kind::kMoved) moves.push_back(event.to);
    }
    for (const Explanation& one : session_->explanations()) {
      if (one.group != group) continue;
      EXPECT_EQ(one.why, "random places rows by position");
      EXPECT_GT(one.num_tokens, kToken);
      const Tier before = explained.empty() ? Tier::kT0 : explained.back();
      if (one.tier != before) explained.push_back(one.tier);
    }
    EXPECT_EQ(explained, moves) << "group " << group;
  }
  ExpectOk(session_->TruncateTo(kToken));
  EXPECT_TRUE(session_->explanations().empty());
}

TEST_P(LedgerAgainstCache, EachTokenIsExplainedAsItLiesNow) {
  ExpectOk(session_->Prefill(SomeTokens(90)));
  Decode(40);
  const Ledger& ledger = *session_->ledger();
  size_t num_gone = 0;
  for (Position token = 0; token < ledger.next_position(); ++token) {
    const std::vector<Explanation> all = session_->Explain(token);
    ASSERT_EQ(all.size(), static_cast<size_t>(ledger.num_groups()));
    for (const Explanation& one : all) {
      EXPECT_EQ(one.tier, ledger.tiers(one.group)[token]) << "token " << token;
      const bool is_gone = one.tier == Tier::kT3;
      EXPECT_EQ(one.why,
                is_gone ? "an earlier decision evicted it" : "random places rows by position");
      num_gone += is_gone ? 1 : 0;
    }
  }
  EXPECT_GT(num_gone, 0u);
  EXPECT_TRUE(session_->Explain(ledger.next_position()).empty());
  EXPECT_TRUE(session_->Explain(-1).empty());
}

INSTANTIATE_TEST_SUITE_P(, LedgerAgainstCache,
                         testing::Values(Granularity::kToken, Granularity::kLayer,
                                         Granularity::kHead),
                         [](const auto& info) { return std::string(GranularityName(info.param)); });

TEST(LedgerTest, NobodyAskedNobodyPays) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(10)));
  EXPECT_EQ(session->ledger(), nullptr);
  EXPECT_EQ(session->accounting().ledger_bytes, 0u);
}

// T1 is full: moves stop half-way, and the ledger tells how far they came.
TEST(LedgerTest, AgreesWhenMovesFindNoRoom) {
  TierSetting tiers;
  tiers.engine.t1 = T1Place::kHost;
  tiers.engine.t1_cap_bytes = size_t{2} << 20;
  auto engine = MakeEngine({.threads = 1, .tiers = tiers.engine});
  auto first = Open(*engine, Moves<SinkingPlacement>(Granularity::kHead));
  auto second = Open(*engine, Moves<SinkingPlacement>(Granularity::kHead));
  for (Session* session : {first.get(), second.get()}) {
    ExpectOk(session->Prefill(SomeTokens(1500)));
  }
  ExpectOk(first->Decode(1));
  EXPECT_EQ(second->Decode(1).status.code(), StatusCode::kT1Full);
  ExpectAgrees(*first);
  ExpectAgrees(*second);
  EXPECT_GT(second->ledger()->rows(Tier::kT1), 0);
  EXPECT_GT(second->ledger()->rows(Tier::kT0), 0);
}

TEST(LedgerTest, AgreesForEverySessionOfABatch) {
  const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t2_share = 0.5}};
  auto engine = MakeEngine({.threads = 1, .tiers = tiers.engine});
  auto first = Open(*engine, Moves(Granularity::kHead));
  auto second = Open(*engine, Moves(Granularity::kToken));
  auto third = Open(*engine);
  ExpectOk(first->Prefill(SomeTokens(40)));
  ExpectOk(second->Prefill(SomeTokens(71, 2)));
  ExpectOk(third->Prefill(SomeTokens(5)));
  const std::vector<Session*> batch = {first.get(), second.get(), third.get()};
  for (int i = 0; i < 20; ++i) {
    const auto token = static_cast<Token>(i % 7 + 1);
    ExpectOk(engine->DecodeBatch(batch, std::vector<Token>{token, token + 1, token}));
    ExpectAgrees(*first);
    ExpectAgrees(*second);
    if (i == 9) ExpectOk(second->TruncateTo(60));
  }
  EXPECT_GT(first->ledger()->rows(Tier::kT3), 0);
  EXPECT_EQ(third->ledger(), nullptr);
}

TEST(LedgerTest, AgreesWhenKeysAreRotatedAnew) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.ledger = SessionOptions::Record::kYes;
  options.policy = {.name = "streaming", .granularity = Granularity::kHead};
  options.policy.window = 16;
  options.context = 64;
  options.past_context = PastContext::kReRotate;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(40)));
  for (int i = 0; i < 100; ++i) {
    ExpectOk(session->Decode(static_cast<Token>(i % 7 + 1)));
    ExpectAgrees(*session);
  }
  EXPECT_EQ(session->ledger()->rows(Tier::kT3), session->accounting().rows_evicted);
}

TEST(LedgerTest, AResumedSessionKnowsWhereItsRowsAre) {
  SessionOptions options;
  options.ledger = SessionOptions::Record::kYes;
  options.policy = {.name = "attention", .granularity = Granularity::kLayer};
  options.policy.window = options.policy.interval = 8;
  options.policy.tiers = TierShares{.t2_share = 0.4, .evict_share = 0.2};
  const TempFolder folder;
  const EngineTiers tiers = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};
  const OwnSession first = OpenOwn(options, tiers);
  ExpectOk(first.session->Prefill(SomeTokens(30)));
  for (int i = 0; i < 80; ++i) ExpectOk(first.session->Decode(static_cast<Token>(i % 7 + 1)));
  ExpectOk(SaveSession(*first.session, folder.File("session"), ""));
  const auto second = ResumeOwn(folder.File("session"), options, tiers);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_GT(second->session->ledger()->rows(Tier::kT2), 0);
  ExpectAgrees(*second->session);
  for (int i = 0; i < 20; ++i) ExpectOk(second->session->Decode(static_cast<Token>(i % 5 + 1)));
  ExpectAgrees(*second->session);
}

// The best of many steps: this process may be interrupted in any of them.
TEST(StepReportTest, CostsAddUpToTheGraph) {
  EBB_CPU_ONLY("it needs the CPU's own graphs");
  auto engine = MakeEngine();
  SessionOptions options;
  options.step_costs = SessionOptions::Record::kYes;
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(60)));
  StepCosts least = {.embedding_seconds = 1, .matmul_seconds = 1};
  double best_share = 0;
  for (int i = 0; i < 30; ++i) {
    ExpectOk(session->Decode(3));
    const StepReport& report = session->last_step();
    ASSERT_TRUE(report.costs.has_value());
    const StepCosts& costs = *report.costs;
    EXPECT_GT(costs.embedding_seconds, 0);
    EXPECT_GT(costs.attention_seconds, 0);
    EXPECT_GT(costs.other_seconds, 0);
    least.embedding_seconds = std::min(least.embedding_seconds, costs.embedding_seconds);
    least.matmul_seconds = std::min(least.matmul_seconds, costs.matmul_seconds);
    const double sum = costs.embedding_seconds + costs.matmul_seconds + costs.attention_seconds +
                       costs.other_seconds + report.io_wait_seconds;
    EXPECT_LE(sum, report.compute_seconds);
    best_share = std::max(best_share, sum / report.compute_seconds);
  }
  EXPECT_GT(least.matmul_seconds, least.embedding_seconds);
  EXPECT_GT(best_share, 0.5);
}

TEST(StepReportTest, CostsAreMeasuredOnRequestOnly) {
  auto engine = MakeEngine();
  auto session = Open(*engine);
  ExpectOk(session->Prefill(SomeTokens(10)));
  EXPECT_FALSE(session->last_step().costs.has_value());
}

TEST(StepReportTest, MovesAreThoseOfTheStep) {
  const TierSetting tiers = {.engine = {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8},
                             .shares = {.t2_share = 0.5}};
  auto engine = MakeEngine({.threads = 1, .tiers = tiers.engine});
  auto session = Open(*engine, Moves(Granularity::kLayer));
  ExpectOk(session->Prefill(SomeTokens(60)));
  MoveAccounting sum = session->last_step().moves;
  for (int i = 0; i < 20; ++i) {
    ExpectOk(session->Decode(2));
    const MoveAccounting& moves = session->last_step().moves;
    EXPECT_LE(moves.seconds_down + moves.seconds_up, moves.seconds);
    sum.rows_down += moves.rows_down;
    sum.bytes_up += moves.bytes_up;
    sum.rows_compressed += moves.rows_compressed;
  }
  const MoveAccounting all = session->accounting().moves;
  EXPECT_EQ(sum.rows_down, all.rows_down);
  EXPECT_EQ(sum.bytes_up, all.bytes_up);
  EXPECT_EQ(sum.rows_compressed, all.rows_compressed);
  EXPECT_GT(all.rows_compressed, 0);
}

TEST(SessionTest, ObserversSeeTheMassOfEveryRowOfAStep) {
  auto engine = MakeEngine();
  SessionOptions options;
  options.extra_signals.mass = MassNeed::kSummed;
  double mass = 0;
  size_t rows = 0;
  options.on_signals = [&](int group, std::span<const Position> positions,
                           const GroupSignals& signals, const StepSignals&) {
    EXPECT_EQ(group, 0);
    rows = positions.size();
    mass = 0;
    for (const float m : signals.mass) mass += m;
  };
  auto session = Open(*engine, options);
  ExpectOk(session->Prefill(SomeTokens(30)));
  ExpectOk(session->Decode(3));
  EXPECT_EQ(rows, 31u);
  // A probability per query head of each layer.
  EXPECT_NEAR(mass, SmallModelOptions().num_layers * SmallModelOptions().num_q_heads, 1e-3);
}

}  // namespace
}  // namespace ebb
