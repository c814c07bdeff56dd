// Which rows leave, in which number format the others are and where they lie are independent
// choices: random combinations of them, checked against each other and against simple models.
#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <set>

#include "src/policy/pairs.h"
#include "src/session/session_impl.h"
#include "tests/engine/dms/dms_fixture.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it compares bits, which a device has others of for each tier");

using testing::HasSubstr;

constexpr int kStackPrompt = 150, kStackChunk = 64;

// NamedChoice is a choice with the name that failures show.
template <typename T>
struct NamedChoice {
  const char* name;
  T value;
};

std::vector<NamedChoice<PolicySpec>> Retentions() {
  const auto budget = [](const char* text) { return *ParseBudget(text); };
  return {
      {"full", {}},
      {"dms", {.name = "dms"}},
      {"streaming", {.name = "streaming", .budget = budget("96")}},
      {"h2o", {.name = "h2o", .params = {{"heavy", "20"}, {"recent", "30"}}}},
      {"h2o at intervals",
       {.name = "h2o", .params = {{"heavy", "20"}, {"recent", "30"}}, .interval = 16}},
      {"tova", {.name = "tova", .budget = budget("70"), .interval = 4}},
      {"attention", {.name = "attention", .budget = budget("50%"), .window = 16, .interval = 8}},
      {"lag_kv", {.name = "lag_kv", .budget = budget("+40"), .interval = 8}},
      {"recency", {.name = "recency", .budget = budget("+40"), .window = 16, .interval = 8}}};
}

// Formats of the rows that stay; the place is chosen apart.
std::vector<NamedChoice<TierSetting>> Formats() {
  const auto old = [](CompressedType type, int first, int newest) {
    return TierSetting{.engine = {.t2_type = type},
                       .shares = {.t2_rows = T2Rows::kOld, .t2_first = first, .t2_newest = newest}};
  };
  return {
      {"f16", {}},
      {"old:int8", old(CompressedType::kInt8, 8, 16)},
      {"old:int4", old(CompressedType::kInt4, 64, 65)},
      {"old:int3", old(CompressedType::kInt3, 0, 1)},
      {"old:int2", old(CompressedType::kInt2, 8, 16)},
      {"half:int8", {.engine = {.t2_type = CompressedType::kInt8}, .shares = {.t2_share = 0.5}}}};
}

// Returns whether few rows stay in full precision, so that small budgets hold compressed ones.
bool CompressesMost(const TierSetting& tiers) {
  return tiers.shares.t2_rows == T2Rows::kOld && tiers.shares.t2_newest < kStackChunk;
}

// An open session and the engine that it needs.
struct OpenedStack {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Session> session;
};

OpenedStack OpenStack(PolicySpec policy, TierSetting tiers, T1Place t1, int threads = 1) {
  tiers.engine.t1 = t1;
  if (t1 != T1Place::kNone && tiers.shares.t2_rows != T2Rows::kOld) tiers.shares.t0_share = 0.3;
  policy.tiers = tiers.shares;
  auto engine = MakeEngineOf(
      MarkingModel(), {.threads = threads, .tiers = tiers.engine, .prefill_chunk = kStackChunk});
  auto session = Open(*engine, policy);
  return {.engine = std::move(engine), .session = std::move(session)};
}

// The positions of a group's rows, and which of them are in T2.
struct ListedRows {
  std::vector<Position> all;
  std::vector<Position> compressed;
  bool operator==(const ListedRows&) const = default;
};

std::vector<ListedRows> ListRowsOf(Session& session) {
  std::vector<ListedRows> rows;
  SequenceCache& cache = Internals::SequenceOf(session).cache();
  for (int group = 0; group < NumGroups(session); ++group) {
    ListedRows& of = rows.emplace_back();
    const auto positions = session.visible_positions(group);
    of.all.assign(positions.begin(), positions.end());
    const auto tiers = cache.tiers(group);
    for (size_t i = 0; i < positions.size(); ++i) {
      if (!tiers.empty() && tiers[i] == Tier::kT2) of.compressed.push_back(positions[i]);
    }
  }
  return rows;
}

// Checks the counts of a session against its lists of rows, and that no row in T2 could be hidden.
void ExpectCountsAgree(Session& session, bool rolled_back) {
  ExpectOk(Internals::SequenceOf(session).cache().Validate());
  const CacheAccounting accounting = session.accounting();
  const std::vector<ListedRows> rows = ListRowsOf(session);
  const auto streams = static_cast<int64_t>(MarkingModel()->shape().NumStreams());
  const int64_t of_group = streams / static_cast<int64_t>(rows.size());
  int64_t all = 0, compressed = 0;
  for (const ListedRows& group : rows) {
    all += static_cast<int64_t>(group.all.size()) * of_group;
    compressed += static_cast<int64_t>(group.compressed.size()) * of_group;
    const Placement* const placement = session.policy().placement.get();
    const int held = placement == nullptr ? 0 : placement->DecidedAfter();
    if (rolled_back || held == 0 || group.compressed.empty()) continue;
    EXPECT_LT(group.compressed.back(), session.next_position() - held);
  }
  EXPECT_EQ(AllRows(accounting), all);
  EXPECT_EQ(accounting.tiers[2].rows, compressed);
  const CacheLayout& layout = Internals::SequenceOf(session).cache().layout();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    const TierAccounting& of_tier = accounting.tiers[static_cast<int>(tier)];
    EXPECT_EQ(of_tier.row_bytes, of_tier.rows * layout.RowBytes(tier));
  }
  if (!rolled_back) {
    EXPECT_EQ(accounting.rows_evicted, session.next_position() * streams - all);
  }
  for (const float logit : session.logits()) ASSERT_TRUE(std::isfinite(logit));
}

// Moves rows between T0 and T1, as a server does.
void MoveRowsAtRandom(Session& session, std::mt19937* random) {
  if (!Internals::SequenceOf(session).cache().HasTier(Tier::kT1)) return;
  if ((*random)() % 8 == 0) ExpectOk(session.Park());
  if ((*random)() % 8 == 0) ExpectOk(session.SetT0Share(static_cast<double>((*random)() % 5) / 4));
}

// Runs the same text through sessions whose rows lie in different places.
void ExpectPlaceChangesNothing(const PolicySpec& policy, const TierSetting& format,
                               std::mt19937* random) {
  std::vector<OpenedStack> opened;
  opened.push_back(OpenStack(policy, format, T1Place::kNone));
  opened.push_back(OpenStack(policy, format, T1Place::kHost, 2));
  opened.push_back(OpenStack(policy, format, T1Place::kFile));
  const std::vector<Token> text = SomeTokens(500, (*random)());
  bool rolled_back = false;
  const auto compare = [&](int at) {
    const auto expected = ListRowsOf(*opened[0].session);
    for (OpenedStack& o : opened) {
      ASSERT_EQ(o.session->logits_hash(), opened[0].session->logits_hash()) << "at " << at;
      const auto found = ListRowsOf(*o.session);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t group = 0; group < found.size(); ++group) {
        ASSERT_EQ(found[group].all, expected[group].all) << "at " << at << " group " << group;
        ASSERT_EQ(found[group].compressed, expected[group].compressed) << "at " << at;
      }
      ExpectCountsAgree(*o.session, rolled_back);
    }
  };
  int at = kStackPrompt;
  for (OpenedStack& o : opened) ExpectOk(o.session->Prefill(std::span(text).first(kStackPrompt)));
  compare(at);
  const auto decode = [&](int count) {
    for (int i = 0; i < count && !testing::Test::HasFatalFailure(); ++i, ++at) {
      for (OpenedStack& o : opened) {
        ExpectOk(o.session->Decode(text[at]));
        MoveRowsAtRandom(*o.session, random);
      }
      compare(at);
    }
  };
  decode(110);
  const Position end = 170 + static_cast<Position>((*random)() % 60);
  for (OpenedStack& o : opened) ExpectOk(o.session->TruncateTo(end));
  rolled_back = true;
  // A prompt right after the roll-back, while T2 may hold rows that a long step would hide.
  for (OpenedStack& o : opened) ExpectOk(o.session->Prefill(std::span(text).subspan(at, 30)));
  at += 30;
  compare(at);
  decode(40);
  for (OpenedStack& o : opened) {
    auto fork = o.session->Fork();
    ASSERT_TRUE(fork.ok());
    o.session = *std::move(fork);
  }
  decode(10);
}

TEST(Stacking, APlaceChangesNoBitUnderAnyRetentionAndFormat) {
  std::mt19937 random(3);
  for (const auto& [policy, spec] : Retentions()) {
    for (const auto& [format, tiers] : Formats()) {
      SCOPED_TRACE(testing::Message() << policy << " over " << format);
      PolicySpec drawn = spec;
      constexpr Granularity kAll[] = {Granularity::kToken, Granularity::kLayer, Granularity::kHead};
      drawn.granularity = kAll[random() % 3];
      ExpectPlaceChangesNothing(drawn, tiers, &random);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// Scores that do not depend on rows choose the same rows in every format.
TEST(Stacking, AFormatKeepsTheRowsThatPositionsChoose) {
  for (const auto& [policy, spec] : Retentions()) {
    if (spec.name != "streaming" && spec.name != "recency") continue;
    std::vector<std::vector<Position>> expected;
    for (const auto& [format, tiers] : Formats()) {
      SCOPED_TRACE(testing::Message() << policy << " over " << format);
      OpenedStack o = OpenStack(spec, tiers, T1Place::kNone);
      ExpectOk(o.session->Prefill(SomeTokens(kStackPrompt)));
      std::vector<std::vector<Position>> found;
      for (const Token token : SomeTokens(200, 3)) {
        ExpectOk(o.session->Decode(token));
        found.push_back(ListRowsOf(*o.session)[0].all);
      }
      if (expected.empty()) expected = found;
      ASSERT_EQ(found, expected);
      EXPECT_LT(found.back().size(), 350u);
      if (CompressesMost(tiers)) {
        EXPECT_GT(o.session->accounting().tiers[2].rows, 0);
      }
    }
  }
}

// Marks are read from hidden states, so each format has its own; the rule over them is the same.
TEST(Stacking, TheModelsMarksEvictOverAnyFormatAndPlace) {
  for (const auto& [format, tiers] : Formats()) {
    for (const T1Place t1 : {T1Place::kNone, T1Place::kHost}) {
      SCOPED_TRACE(testing::Message() << format << " " << T1PlaceName(t1));
      OpenedStack o = OpenStack(kDms, tiers, t1);
      MarksRule rule(MarkingModel()->shape(), Granularity::kHead, kMarksWindow, 1);
      const std::vector<Token> text = SomeTokens(300);
      for (int done = 0; done < 160; done += 20) {
        ExpectOk(o.session->Prefill(std::span(text).subspan(done, 20)));
        rule.See(o.session->last_signals());
      }
      for (size_t i = 160; i < text.size(); ++i) {
        ExpectOk(o.session->Decode(text[i]));
        rule.See(o.session->last_signals());
        ASSERT_EQ(VisibleRows(*o.session), rule.Visible()) << "at " << i;
      }
      EXPECT_GT(o.session->accounting().rows_evicted, 0);
      if (CompressesMost(tiers)) {
        EXPECT_GT(o.session->accounting().tiers[2].rows, 0);
      }
    }
  }
}

// `first` and `newest` are what stays in full precision, less what the policy evicts.
TEST(Stacking, OldRowsAreAllButTheFirstAndTheNewest) {
  for (const auto& [name, spec] : Retentions()) {
    if (spec.name == "dms") continue;
    TierSetting tiers = Formats()[1].value;  // first=8, newest=16
    OpenedStack o = OpenStack(spec, tiers, T1Place::kNone);
    ExpectOk(o.session->Prefill(SomeTokens(kStackPrompt)));
    for (const Token token : SomeTokens(120, 5)) {
      ExpectOk(o.session->Decode(token));
      const Position end = (o.session->next_position() - 16) / 16 * 16;
      for (const ListedRows& group : ListRowsOf(*o.session)) {
        std::vector<Position> expected;
        for (const Position p : group.all) {
          if (p >= 8 && p < end) expected.push_back(p);
        }
        ASSERT_EQ(group.compressed, expected) << name;
      }
    }
  }
}

TEST(Stacking, EvictingAShareStacksOnOldRows) {
  TierSetting tiers = Formats()[1].value;
  tiers.shares.evict_share = 0.5;
  PolicySpec policy = {.window = 16, .interval = 8};
  OpenedStack o = OpenStack(policy, tiers, T1Place::kNone);
  EXPECT_EQ(o.session->policy().name, "lag_kv");
  ExpectOk(o.session->Prefill(SomeTokens(40)));
  for (const Token token : SomeTokens(160, 5)) ExpectOk(o.session->Decode(token));
  // Of 200 tokens 40 + 4 + 16 are protected, and half of the others are gone.
  const std::vector<ListedRows> rows = ListRowsOf(*o.session);
  EXPECT_EQ(rows[0].all.size(), 200u - 70);
  EXPECT_GT(rows[0].compressed.size(), 80u);
}

// A budget in bytes buys more compressed rows than full ones.
TEST(Stacking, ABudgetInBytesCountsRowsInTheirFormat) {
  const auto rows_of = [](const TierSetting& tiers) {
    PolicySpec policy = {.name = "streaming", .budget = *ParseBudget("256KiB")};
    OpenedStack o = OpenStack(policy, tiers, T1Place::kNone);
    ExpectOk(o.session->Prefill(SomeTokens(900)));
    for (const Token token : SomeTokens(40, 3)) ExpectOk(o.session->Decode(token));
    return ListRowsOf(*o.session)[0].all.size();
  };
  // 1,024 bytes of full rows a token: two layers with two kv heads of 64 channels.
  EXPECT_EQ(rows_of({}), 256u);
  const TierSetting old = Formats()[2].value;
  const size_t full = 64 + 64 + 64;
  const size_t row_bytes =
      4 * CompressedFormat{.type = CompressedType::kInt4, .head_dim = 64}.RowStride();
  EXPECT_EQ(rows_of(old), full + ((256 << 10) - full * 1024) / row_bytes);
}

TEST(Stacking, QuestReadsWhatOtherPoliciesLeave) {
  PolicySpec policy = kDms;
  policy.read = "quest:rows=48,page=16";
  TierSetting none;
  std::vector<uint64_t> hashes;
  for (const T1Place t1 : {T1Place::kNone, T1Place::kHost, T1Place::kFile}) {
    OpenedStack o = OpenStack(policy, none, t1);
    ExpectOk(o.session->Prefill(SomeTokens(500)));
    for (const Token token : SomeTokens(60, 3)) ExpectOk(o.session->Decode(token));
    EXPECT_GT(o.session->accounting().rows_evicted, 0);
    EXPECT_EQ(o.session->accounting().tiers[1].rows > 0, t1 != T1Place::kNone);
    for (const float logit : o.session->logits()) ASSERT_TRUE(std::isfinite(logit));
    hashes.push_back(o.session->logits_hash());
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

TEST(Stacking, SelectReadsWhatTheMarksLeave) {
  TierSetting tiers = {.shares = {.t1_read = T1Read::kSelect, .t1_mass = 0.5}};
  std::vector<uint64_t> hashes;
  for (const T1Place t1 : {T1Place::kNone, T1Place::kHost, T1Place::kFile}) {
    OpenedStack o = OpenStack(kDms, tiers, t1);
    ExpectOk(o.session->Prefill(SomeTokens(900)));
    for (const Token token : SomeTokens(200, 3)) ExpectOk(o.session->Decode(token));
    EXPECT_GT(o.session->accounting().rows_evicted, 0);
    EXPECT_GT(o.session->accounting().selection.rows_unread, 0);
    for (const float logit : o.session->logits()) ASSERT_TRUE(std::isfinite(logit));
    hashes.push_back(o.session->logits_hash());
  }
  EXPECT_EQ(hashes[1], hashes[0]);
  EXPECT_EQ(hashes[2], hashes[0]);
}

}  // namespace
}  // namespace ebb
