// The contract of every policy, checked over all built-in policies at all granularities, with every
// kind of budget that they take and with every kind of hierarchy. A new policy joins by its row in
// the table of built-ins; the only thing to add here is its protected set.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/policy/policy_harness.h"

namespace ebb {
namespace {

using Fault = MadeUpSignals::Fault;

constexpr int kBudgetRows = 200;
constexpr int kRowsBeyond = 100;
constexpr int kSinks = 4;
constexpr int kWindow = 128;
constexpr int kLongestInterval = 128;  // of the policies' defaults
constexpr int kEvictionWindow = 32;    // that the model says

constexpr size_t kRowBytes = 32768;
constexpr uint64_t kTokenBytes = kRowBytes * 3 * 2;  // of Context()

struct Hierarchy {
  const char* name;
  TierSetting spec;
};

// The cap of "capped" has room in T0 for less than the prompts of this file, that of "bounded" for
// all rows.
const Hierarchy kHierarchies[] = {
    {"exact", {.shares = {.t0_share = 0.5}}},
    {"grid",
     {.engine = {.t2_type = CompressedType::kInt8},
      .shares = {.t0_share = 0.3, .t2_share = 0.25, .evict_share = 0.1}}},
    {"compounding",
     {.engine = {.t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.5, .evict_share = 0.5, .evict_of = EvictOf::kAlive}}},
    {"resident",
     {.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.5, .evict_share = 0.05}}},
    {"capped",
     {.engine = {.t0_cap_bytes = kTokenBytes * 64 * 3, .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.25, .evict_share = 0.05}}},
    {"bounded",
     {.engine = {.t0_cap_bytes = kTokenBytes * 64 * 5,
                 .t1 = T1Place::kHost,
                 .t1_cap_bytes = kTokenBytes * 64 * 20,
                 .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.25, .evict_share = 0.5}}},
};

// Places what a policy with a budget keeps.
const Hierarchy kStacked = {
    "stacked",
    {.engine = {.t2_type = CompressedType::kInt8}, .shares = {.t0_share = 0.3, .t2_share = 0.5}}};

struct Setting {
  std::string policy;
  Granularity granularity;
  std::string budget = {};  // empty: none
  const Hierarchy* hierarchy = nullptr;
};

// "h2o" of "windowed:h2o", which protects the same.
std::string BaseOf(const std::string& policy) { return policy.substr(policy.find(':') + 1); }

bool IsOneOf(const std::string& policy, std::initializer_list<const char*> names) {
  return std::find(names.begin(), names.end(), policy) != names.end();
}

PolicyContext Context() {
  PolicyContext context = {.shape = HarnessOptions().shape,
                           .row_bytes = kRowBytes,
                           .max_tokens = 4096,
                           .foresight = &SomeForesight(),
                           .eviction_window = kEvictionWindow};
  return context;
}

Result<Policy> TryMake(const Setting& setting) {
  PolicySpec spec = {.name = setting.policy, .granularity = setting.granularity, .seed = 3};
  if (!setting.budget.empty()) {
    EBB_ASSIGN_OR_RETURN(spec.budget, ParseBudget(setting.budget));
  }
  PolicyContext context = Context();
  if (setting.hierarchy != nullptr) {
    const EngineTiers& tiers = setting.hierarchy->spec.engine;
    spec.tiers = setting.hierarchy->spec.shares;
    context.tiers = tiers;
    // Pages of 64 rows, less one.
    const auto rows = [](uint64_t cap_bytes) { return cap_bytes / kTokenBytes - 64; };
    if (tiers.t0_cap_bytes > 0) context.rows_available.t0 = rows(tiers.t0_cap_bytes);
    if (tiers.t1_cap_bytes > 0) context.rows_available.t1 = rows(tiers.t1_cap_bytes);
  }
  return MakePolicy(spec, context);
}

std::vector<Setting> AllSettings() {
  const std::string budgets[] = {"", std::to_string(kBudgetRows), "50%",
                                 "+" + std::to_string(kRowsBeyond),
                                 std::to_string(kBudgetRows * kTokenBytes) + "B"};
  std::vector<std::string> names;
  for (const PolicyInfo& info : BuiltinPolicies()) names.emplace_back(info.name);
  for (const char* base : {"h2o", "tova", "raas", "attention", "streaming"}) {
    names.push_back(std::string("windowed:") + base);
  }
  std::vector<Setting> settings;
  for (const std::string& name : names) {
    for (const auto granularity : {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
      for (const std::string& budget : budgets) {
        settings.push_back({name, granularity, budget});
      }
      for (const Hierarchy& hierarchy : kHierarchies) {
        settings.push_back({name, granularity, "", &hierarchy});
      }
      for (const std::string& budget : budgets) {
        settings.push_back({name, granularity, budget, &kStacked});
      }
    }
  }
  return settings;
}

std::vector<Setting> AcceptedSettings() {
  std::vector<Setting> settings = AllSettings();
  std::erase_if(settings, [](const Setting& setting) { return !TryMake(setting).ok(); });
  return settings;
}

// At the granularity of the policy's source all of them; at the others what can differ there.
std::vector<Setting> SettingsToRun() {
  std::vector<Setting> settings = AcceptedSettings();
  std::erase_if(settings, [](const Setting& setting) {
    const auto policies = BuiltinPolicies();
    const auto found = std::ranges::find(policies, BaseOf(setting.policy), &PolicyInfo::name);
    if (found->granularity == setting.granularity) return false;
    if (setting.hierarchy != nullptr) return setting.hierarchy != &kHierarchies[1];
    return setting.budget != "50%";
  });
  return settings;
}

TEST(PolicyConformanceTable, EveryPolicyIsMadeAtEveryGranularityWithSomeBudget) {
  const std::vector<Setting> accepted = AcceptedSettings();
  for (const Setting& setting : AllSettings()) {
    EXPECT_TRUE(std::any_of(accepted.begin(), accepted.end(),
                            [&](const Setting& other) {
                              return other.policy == setting.policy &&
                                     other.granularity == setting.granularity;
                            }))
        << setting.policy << " " << GranularityName(setting.granularity);
  }
}

TEST(PolicyConformanceTable, EveryHierarchyIsMadeOfEveryPolicyAtEveryGranularity) {
  for (const Setting& setting : AllSettings()) {
    if (setting.hierarchy == nullptr || !setting.budget.empty()) continue;
    const Status status = TryMake(setting).status();
    // Marks evict by themselves, keys that turn take no tiers, and Quest reads no compressed rows.
    const TierShares& shares = setting.hierarchy->spec.shares;
    const bool is_refused = (setting.policy == "dms" && shares.evict_share > 0) ||
                            setting.policy == "streaming_rerotated" ||
                            (setting.policy == "quest" && shares.t2_share > 0);
    EXPECT_EQ(status.ok(), !is_refused)
        << setting.policy << " " << setting.hierarchy->name << " " << status.ToString();
  }
}

TEST(PolicyConformanceTable, ARefusalIsAnInvalidArgumentThatNamesThePolicy) {
  int num_refused = 0;
  for (const Setting& setting : AllSettings()) {
    const Status status = TryMake(setting).status();
    if (status.ok()) continue;
    ++num_refused;
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), ::testing::HasSubstr("\"" + BaseOf(setting.policy) + "\""));
  }
  EXPECT_GT(num_refused, 0);
}

// The suite relies on this: moves that break the contract are detected.
class FixedMoves final : public Placement {
 public:
  explicit FixedMoves(std::vector<uint32_t> rows) : rows_(std::move(rows)) {}
  std::string Name() const override { return "fixed"; }
  bool NeedsScores() const override { return false; }
  bool Due(const PlacementInput&, size_t) const override { return true; }
  void Place(const PlacementInput&, std::vector<Move>* moves) override {
    for (const uint32_t row : rows_) moves->push_back({.row = row});
  }

 private:
  const std::vector<uint32_t> rows_;
};

TEST(PolicyHarness, SeesMovesThatAreNotAscendingNotUniqueOrOfNoRow) {
  const auto run = [](const std::vector<uint32_t>& rows) {
    Policy policy = *TryMake({"full", Granularity::kToken});
    policy.placement = std::make_unique<FixedMoves>(rows);
    return PolicyHarness(std::move(policy), {}).Prefill(5);
  };
  EXPECT_TRUE(run({}).ok());
  EXPECT_TRUE(run({0, 3, 4}).ok());
  for (const auto& rows : {std::vector<uint32_t>{3, 0}, {1, 1}, {0, 5}}) {
    EXPECT_EQ(run(rows).code(), StatusCode::kInternal);
  }
}

class PolicyConformance : public ::testing::TestWithParam<Setting> {
 protected:
  PolicyHarness Make(Fault fault = Fault::kNone, uint64_t signal_seed = 1) {
    return PolicyHarness(*TryMake(GetParam()), {.signal_seed = signal_seed, .fault = fault});
  }

  bool HasRowBudget() const {
    const std::string& budget = GetParam().budget;
    return !budget.empty() && !budget.ends_with('%') && !budget.starts_with('+');
  }

  // Returns the budget for so many tokens, when a decision has just been made.
  size_t BudgetOf(size_t num_tokens) const {
    if (HasRowBudget()) return kBudgetRows;
    return GetParam().budget.starts_with('+') ? kRowsBeyond : (num_tokens + 1) / 2;
  }

  // Returns whether the policy evicts by itself, in addition to the tiers.
  static bool EvictsByItself() {
    return GetParam().hierarchy == nullptr || !GetParam().budget.empty() ||
           GetParam().policy == "dms";
  }

  // Returns whether the rule that evicts keeps this position for good at this moment. The hierarchy
  // has the protected set of "attention" for the scorers of all policies.
  bool IsProtected(const std::vector<TokenKind>& kinds, Position position) const {
    return IsProtected(kinds, position, EvictsByItself() ? BaseOf(GetParam().policy) : "attention");
  }
  bool IsProtected(const std::vector<TokenKind>& kinds, Position position,
                   const std::string& policy) const {
    const int num_tokens = static_cast<int>(kinds.size());
    const auto is_recent = [&](size_t window) {
      return position + static_cast<int>(window) >= num_tokens;
    };
    if (IsOneOf(policy, {"full", "quest"})) return true;
    if (IsOneOf(policy, {"streaming", "streaming_rerotated"})) {
      return position < kSinks || is_recent(1);
    }
    if (policy == "h2o") return is_recent(HasRowBudget() ? kBudgetRows / 2 : 1);
    if (policy == "vatp") {
      return position < kSinks || is_recent(HasRowBudget() ? kBudgetRows / 2 : 1);
    }
    if (policy == "tova") return false;
    if (policy == "dms") return is_recent(kEvictionWindow);
    if (policy == "rkv") return is_recent(std::min<size_t>(8, BudgetOf(num_tokens)));
    if (policy == "lazy_eviction") return is_recent(std::min<size_t>(64, BudgetOf(num_tokens)));
    if (IsOneOf(policy, {"thinkv", "thinkv_original"})) {
      return is_recent(std::min<size_t>(128, BudgetOf(num_tokens) / 4));
    }
    if (IsOneOf(policy, {"raas", "epikv", "hs_variance", "band_adaptive", "kv_key", "kv_val",
                         "lag_kv", "lag_key", "attn_hs", "segment_hs"})) {
      const size_t num_generated = std::count(kinds.begin(), kinds.end(), TokenKind::kGenerated);
      return kinds[position] == TokenKind::kGiven ||
             is_recent(std::min<size_t>(128, BudgetOf(num_generated) / 4));
    }
    if (IsOneOf(policy, {"attention", "attention_mean", "attention_recent", "redundancy",
                         "combined", "random", "recency", "oracle"})) {
      const auto end = kinds.begin() + position + 1;
      return kinds[position] == TokenKind::kGiven || is_recent(kWindow) ||
             std::count(kinds.begin(), end, TokenKind::kGenerated) <= kSinks;
    }
    ADD_FAILURE() << "write down what policy \"" << policy << "\" protects";
    return false;
  }

  // The rows that the budget allows when a decision has just been made.
  size_t MostRows(const PolicyHarness& harness) const {
    const size_t num_tokens = harness.kinds().size();
    if (GetParam().budget.empty() || GetParam().policy == "quest") return num_tokens;
    if (HasRowBudget()) return kBudgetRows;
    size_t num_protected = 0;
    for (size_t i = 0; i < num_tokens; ++i) {
      num_protected += IsProtected(harness.kinds(), static_cast<Position>(i)) ? 1 : 0;
    }
    return num_protected + BudgetOf(num_tokens);
  }

  bool Evicts() const {
    if (!EvictsByItself()) return GetParam().hierarchy->spec.shares.evict_share > 0;
    if (GetParam().policy == "dms") return true;
    return !GetParam().budget.empty() && GetParam().policy != "quest";
  }

  bool NothingProtectedIsCompressed(const PolicyHarness& harness) const {
    for (int group = 0; group < harness.num_groups(); ++group) {
      const std::vector<Position>& positions = harness.positions(group);
      for (size_t i = 0; i < positions.size(); ++i) {
        if (harness.tiers(group)[i] < Tier::kT2) continue;
        if (IsProtected(harness.kinds(), positions[i], "attention")) return false;
      }
    }
    return true;
  }

  void ExpectConsistent(PolicyHarness* harness) const {
    for (int group = 0; group < harness->num_groups(); ++group) {
      const std::vector<Position>& positions = harness->positions(group);
      const std::span<const float> scores = harness->Scores(group);
      ASSERT_EQ(scores.size(), positions.size());
      ASSERT_TRUE(std::is_sorted(positions.begin(), positions.end()));
      for (const float score : scores) ASSERT_TRUE(std::isfinite(score));
    }
  }

  // Decodes and holds what went in each step against the protected set of that moment.
  void DecodeAndCheck(PolicyHarness* harness, int num_steps) const {
    for (int i = 0; i < num_steps; ++i) {
      const size_t before = harness->evictions().size();
      const Status status = harness->Decode(1);
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (size_t e = before; e < harness->evictions().size(); ++e) {
        const Position position = harness->evictions()[e].position;
        ASSERT_FALSE(IsProtected(harness->kinds(), position)) << "position " << position;
      }
    }
    ExpectConsistent(harness);
  }
};

TEST_P(PolicyConformance, HasNamesAndNeedsThatDoNotChange) {
  PolicyHarness harness = Make();
  const Policy& policy = harness.policy();
  const bool names_no_scorer = GetParam().hierarchy != nullptr && GetParam().policy == "full";
  const char* of_tiers =
      names_no_scorer && GetParam().hierarchy->spec.shares.evict_share > 0 ? "lag_kv" : "attention";
  EXPECT_EQ(policy.name, names_no_scorer ? of_tiers : GetParam().policy);
  EXPECT_EQ(policy.granularity, GetParam().granularity);
  const std::string name = policy.scorer->Name();
  const MassNeed mass = policy.scorer->Needs().mass;
  EXPECT_FALSE(name.empty());
  if (policy.placement) {
    EXPECT_FALSE(policy.placement->Name().empty());
  }
  ASSERT_TRUE(harness.Prefill(10).ok());
  ASSERT_TRUE(harness.Decode(10).ok());
  EXPECT_EQ(policy.scorer->Name(), name);
  EXPECT_EQ(policy.scorer->Needs().mass, mass);
}

TEST_P(PolicyConformance, LeavesAnEmptyGroupAlone) {
  PolicyHarness harness = Make();
  for (int group = 0; group < harness.num_groups(); ++group) {
    EXPECT_TRUE(harness.Scores(group).empty());
    harness.Remove(group, {});
    if (!harness.policy().placement) continue;
    const PlacementInput input = harness.Input(group);
    std::vector<Move> moves;
    if (harness.policy().placement->Due(input, 0)) {
      harness.policy().placement->Place(input, &moves);
    }
    EXPECT_TRUE(moves.empty());
    EXPECT_TRUE(harness.policy().placement->Check(input).ok());
  }
}

TEST_P(PolicyConformance, KeepsASingleRow) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(1).ok());
  ExpectConsistent(&harness);
  for (int group = 0; group < harness.num_groups(); ++group) {
    EXPECT_EQ(harness.positions(group).size(), 1u);
  }
}

TEST_P(PolicyConformance, NothingGoesWhileAllIsProtected) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(8).ok());
  for (int i = 0; i < 70; ++i) {
    const size_t before = harness.evictions().size();
    ASSERT_TRUE(harness.Decode(1).ok());
    bool all = true;
    for (Position p = 0; p < static_cast<Position>(harness.kinds().size()); ++p) {
      all &= IsProtected(harness.kinds(), p);
    }
    if (all) {
      EXPECT_EQ(harness.evictions().size(), before);
    }
  }
}

TEST_P(PolicyConformance, NeverEvictsWhatIsProtected) {
  for (const Fault fault : {Fault::kNone, Fault::kNanLayers, Fault::kNanMass}) {
    PolicyHarness harness = Make(fault);
    ASSERT_TRUE(harness.Prefill(40).ok());
    DecodeAndCheck(&harness, 400);
    if (HasFatalFailure()) return;
    EXPECT_EQ(harness.evictions().empty(), !Evicts());
  }
}

TEST_P(PolicyConformance, NeverCompressesWhatIsProtected) {
  PolicyHarness harness = Make();
  size_t num_compressed = 0;
  for (const int num_given : {40, 1, 20}) {
    ASSERT_TRUE(harness.Prefill(num_given).ok());
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(harness.Decode(1).ok());
      ASSERT_TRUE(NothingProtectedIsCompressed(harness));
    }
    for (const Tier tier : harness.tiers(0)) num_compressed += tier == Tier::kT2 ? 1 : 0;
  }
  const Hierarchy* hierarchy = GetParam().hierarchy;
  EXPECT_EQ(num_compressed > 0, hierarchy != nullptr && hierarchy->spec.shares.t2_share > 0);
}

TEST_P(PolicyConformance, WhatIsProtectedAgainAfterARollBackRisesAtTheNextDecision) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(40).ok());
  ASSERT_TRUE(harness.Decode(400).ok());
  harness.TruncateTo(300);
  ASSERT_TRUE(harness.Decode(7 * kLongestInterval - 400).ok());
  EXPECT_TRUE(NothingProtectedIsCompressed(harness));
}

TEST_P(PolicyConformance, KeepsToTheBudgetAfterEveryDecision) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(40).ok());
  for (int step = 1; step <= 400; ++step) {
    ASSERT_TRUE(harness.Decode(1).ok());
    const bool decided = step % kLongestInterval == 0;
    const size_t most = MostRows(harness) + (decided ? 0 : kLongestInterval - 1);
    for (int group = 0; group < harness.num_groups(); ++group) {
      ASSERT_LE(harness.positions(group).size(), most) << "step " << step;
    }
  }
}

TEST_P(PolicyConformance, DecodeStepsMayHaveSeveralTokens) {
  PolicyHarness harness = Make();
  std::mt19937 random(7);
  ASSERT_TRUE(harness.Prefill(40).ok());
  for (int step = 1; step <= 30; ++step) {
    const size_t before = harness.evictions().size();
    ASSERT_TRUE(harness.DecodeAtOnce(static_cast<int>(1 + random() % 64)).ok());
    for (size_t e = before; e < harness.evictions().size(); ++e) {
      ASSERT_FALSE(IsProtected(harness.kinds(), harness.evictions()[e].position)) << step;
    }
    const size_t most = MostRows(harness) + kLongestInterval - 1;
    for (int group = 0; group < harness.num_groups(); ++group) {
      ASSERT_LE(harness.positions(group).size(), most) << "step " << step;
    }
  }
  ExpectConsistent(&harness);
}

TEST_P(PolicyConformance, APromptOverTheBudgetIsCutOrRefused) {
  PolicyHarness harness = Make();
  const Status status = harness.Prefill(600);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(),
                ::testing::ContainsRegex("smaller than the [67][0-9]* protected rows"));
    EXPECT_TRUE(HasRowBudget());
    return;
  }
  // With dense prefill the first decision in decode steps cuts it.
  const bool is_dense =
      IsOneOf(BaseOf(GetParam().policy), {"tova", "lazy_eviction", "thinkv", "thinkv_original"});
  for (int group = 0; group < harness.num_groups() && !is_dense; ++group) {
    EXPECT_LE(harness.positions(group).size(), MostRows(harness));
  }
  DecodeAndCheck(&harness, kLongestInterval);
  for (int group = 0; group < harness.num_groups(); ++group) {
    EXPECT_LE(harness.positions(group).size(), MostRows(harness));
  }
}

TEST_P(PolicyConformance, LaterUserTurnsGoOn) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(20).ok());
  DecodeAndCheck(&harness, 150);
  for (const int num_tokens : {1, 20}) {
    ASSERT_TRUE(harness.Prefill(num_tokens).ok());
    DecodeAndCheck(&harness, 130);
    if (HasFatalFailure()) return;
  }
}

TEST_P(PolicyConformance, RowsMayBeRemovedFromOutside) {
  PolicyHarness harness = Make();
  std::mt19937 random(4);
  ASSERT_TRUE(harness.Prefill(40).ok());
  for (int round = 0; round < 20; ++round) {
    DecodeAndCheck(&harness, 23);
    if (HasFatalFailure()) return;
    for (int group = 0; group < harness.num_groups(); ++group) {
      std::vector<float> expected;
      std::vector<uint32_t> removed;
      const std::span<const float> scores = harness.Scores(group);
      const uint32_t one_in = round % 2 == 0 ? 50 : 3;
      for (uint32_t row = 0; row < scores.size(); ++row) {
        if (random() % one_in == 0) {
          removed.push_back(row);
        } else {
          expected.push_back(scores[row]);
        }
      }
      harness.Remove(group, removed);
      const std::span<const float> left = harness.Scores(group);
      ASSERT_TRUE(std::equal(left.begin(), left.end(), expected.begin(), expected.end()));
    }
  }
  for (int group = 0; group < harness.num_groups(); ++group) {  // and all of them
    std::vector<uint32_t> all(harness.positions(group).size());
    std::iota(all.begin(), all.end(), 0);
    harness.Remove(group, all);
  }
  DecodeAndCheck(&harness, 70);
}

TEST_P(PolicyConformance, ARollBackKeepsThePrefix) {
  PolicyHarness harness = Make();
  ASSERT_TRUE(harness.Prefill(40).ok());
  DecodeAndCheck(&harness, 300);
  for (const Position end : {339, 250, 100, 42, 20, 0}) {
    std::vector<std::vector<float>> expected;
    for (int group = 0; group < harness.num_groups(); ++group) {
      const std::vector<Position>& positions = harness.positions(group);
      const auto left = std::lower_bound(positions.begin(), positions.end(), end);
      const std::span<const float> scores = harness.Scores(group);
      expected.emplace_back(scores.begin(), scores.begin() + (left - positions.begin()));
    }
    harness.TruncateTo(end);
    for (int group = 0; group < harness.num_groups(); ++group) {
      EXPECT_THAT(harness.Scores(group), ::testing::ElementsAreArray(expected[group]));
    }
    DecodeAndCheck(&harness, 5);
    if (HasFatalFailure()) return;
    harness.TruncateTo(end);
  }
  DecodeAndCheck(&harness, 300);
}

TEST_P(PolicyConformance, IdenticalRunsDecideIdentically) {
  const auto run = [&] {
    PolicyHarness harness = Make(Fault::kNanMass, 7);
    EXPECT_TRUE(harness.Prefill(30).ok());
    EXPECT_TRUE(harness.Decode(300).ok());
    harness.TruncateTo(250);
    EXPECT_TRUE(harness.Decode(100).ok());
    return harness.evictions();
  };
  EXPECT_EQ(run(), run());
}

TEST_P(PolicyConformance, ScoresThatAreNoNumbersBreakNothing) {
  PolicyHarness harness = Make();
  Placement* placement = harness.policy().placement.get();
  if (placement == nullptr || !placement->NeedsScores()) return;
  ASSERT_TRUE(harness.Prefill(40).ok());
  ASSERT_TRUE(harness.Decode(63).ok());
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  // As after 900 more tokens, of which nothing went.
  std::vector<TokenKind> kinds = harness.kinds();
  kinds.insert(kinds.end(), 900, TokenKind::kGenerated);
  std::vector<Position> positions(kinds.size());
  std::iota(positions.begin(), positions.end(), 0);
  for (size_t period = 1; period <= 3; ++period) {
    std::vector<float> scores;
    for (size_t i = 0; i < positions.size(); ++i) scores.push_back(bad[i % period]);
    std::vector<Move> moves;
    const PlacementInput input = {.num_groups = harness.num_groups(),
                                  .positions = positions,
                                  .scores = scores,
                                  .kinds = kinds,
                                  .first_generated = 40,
                                  .next_position = static_cast<Position>(kinds.size()),
                                  .generated_tokens = 8 * kLongestInterval};
    ASSERT_TRUE(placement->Due(input, positions.size()));
    placement->Place(input, &moves);
    // Without a budget to meet, only rows with scores below 0 are evicted.
    const bool goes = BaseOf(GetParam().policy) != "dms" || GetParam().hierarchy != nullptr;
    EXPECT_EQ(moves.empty(), !goes && period < 3);
    for (size_t i = 0; i < moves.size(); ++i) {
      ASSERT_LT(moves[i].row, positions.size());
      if (i > 0) {
        ASSERT_LT(moves[i - 1].row, moves[i].row);
      }
      if (moves[i].to >= Tier::kT2) {
        EXPECT_FALSE(IsProtected(kinds, positions[moves[i].row]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Builtin, PolicyConformance, ::testing::ValuesIn(SettingsToRun()),
                         [](const ::testing::TestParamInfo<Setting>& info) {
                           std::string name = info.param.policy + "_" +
                                              std::string(GranularityName(info.param.granularity));
                           if (!info.param.budget.empty()) name += "_budget_" + info.param.budget;
                           if (info.param.hierarchy != nullptr) {
                             name += std::string("_hierarchy_") + info.param.hierarchy->name;
                           }
                           std::replace(name.begin(), name.end(), '%', 'p');
                           std::replace(name.begin(), name.end(), '+', 'b');
                           std::replace(name.begin(), name.end(), ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace ebb
