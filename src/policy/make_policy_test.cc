#include <cmath>
#include <set>

#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/budgets_for_test.h"
#include "src/policy/policy_table.h"
#include "src/policy/scorers.h"
#include "tests/support/policy/policy_harness.h"
#include "tests/support/smollm2_shape.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

constexpr Budget Bytes(double n) { return {Budget::Unit::kBytes, n}; }

// SmolLM2 with f16 rows: 23,040 bytes a token.
const PolicyContext kSmolLm2Context = {.shape = kSmolLm2Shape,
                                       .row_bytes = 256,
                                       .max_tokens = 8192,
                                       .foresight = &SomeForesight(),
                                       .eviction_window = 512};

constexpr const char* kPolicyNames[] = {
    "full",
    "streaming",
    "h2o",
    "attention",
    "random",
    "recency",
    "oracle",
    "streaming_rerotated",
    "attention_mean",
    "attention_recent",
    "tova",
    "vatp",
    "rkv",
    "redundancy",
    "combined",
    "lazy_eviction",
    "raas",
    "thinkv",
    "thinkv_original",
    "epikv",
    "hs_variance",
    "band_adaptive",
    "kv_key",
    "kv_val",
    "lag_kv",
    "lag_key",
    "attn_hs",
    "segment_hs",
    "dms",
    "quest",
};

// Another test of this process may have registered one of its own.
std::string ValidPolicies() {
  std::string names;
  for (const PolicyRow& row : TablesOf(nullptr).policies)
    names += std::string(row.info.name) + ", ";
  return names + "windowed:NAME";
}

PolicyContext ContextWith(const EngineTiers& tiers) {
  PolicyContext context = kSmolLm2Context;
  context.tiers = tiers;
  return context;
}

Policy Make(const PolicySpec& spec, const EngineTiers& tiers = {}) {
  Result<Policy> policy = MakePolicy(spec, ContextWith(tiers));
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return policy.ok() ? *std::move(policy) : Policy{};
}

std::string ErrorOf(const PolicySpec& spec, const EngineTiers& tiers = {}) {
  const Status status = MakePolicy(spec, ContextWith(tiers)).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.Text();
}

std::unique_ptr<Scorer> SomeScorer(const PolicyExtension::Context& context) {
  return MakeRandomScorer(
      {.shape = context.shape, .granularity = context.granularity, .seed = context.seed});
}

class PolicyRegistryTest : public ::testing::Test {
 protected:
  PolicyRegistryTest() { context_.registry = &registry_; }
  PolicyRegistry registry_;
  PolicyContext context_ = kSmolLm2Context;
};

TEST_F(PolicyRegistryTest, APolicyThatWasAddedIsOneAmongTheOthers) {
  ASSERT_TRUE(registry_
                  .Add({.name = "of_my_own",
                        .description = "a test's",
                        .granularity = Granularity::kLayer,
                        .make_scorer = SomeScorer})
                  .ok());
  PolicySpec spec = {.name = "of_my_own", .budget = {Budget::Unit::kPercent, 25}, .window = 8};
  Result<Policy> policy = MakePolicy(spec, context_);
  ASSERT_TRUE(policy.ok()) << policy.status().message();
  EXPECT_EQ(policy->name, "of_my_own");
  EXPECT_EQ(policy->granularity, Granularity::kLayer);
  EXPECT_TRUE(policy->placement->NeedsScores());
  EXPECT_TRUE(*IsRandomized(spec, &registry_));
  EXPECT_EQ(DropUnusedOptions(spec, &registry_)->window, 8);

  spec = {.name = "windowed:h2o", .scorer = "of_my_own"};
  EXPECT_TRUE(MakePolicy(spec, context_).ok());
  spec = {.name = "of_my_own", .tiers = TierShares{.evict_share = 0.1}};
  EXPECT_TRUE(MakePolicy(spec, context_).ok()) << "it drives the hierarchy too";
  EXPECT_THAT(MakePolicy({.name = "nobodys"}, context_).status().message(), HasSubstr("of_my_own"));
}

TEST_F(PolicyRegistryTest, OthersDoNotKnowIt) {
  ASSERT_TRUE(registry_.Add({.name = "of_my_own", .make_scorer = SomeScorer}).ok());
  EXPECT_THAT(ErrorOf({.name = "of_my_own"}), HasSubstr("unknown policy \"of_my_own\""));
  PolicyRegistry other;
  EXPECT_TRUE(other.Add({.name = "of_my_own", .make_scorer = SomeScorer}).ok());
}

TEST_F(PolicyRegistryTest, APolicyCanBeTakenBackWhileOthersStay) {
  for (const char* name : {"first", "second", "third"}) {
    ASSERT_TRUE(registry_.Add({.name = name, .make_scorer = SomeScorer}).ok());
  }
  constexpr Budget kQuarter = {Budget::Unit::kPercent, 25};
  Result<Policy> made = MakePolicy({.name = "second", .budget = kQuarter}, context_);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  ASSERT_TRUE(registry_.Remove("second").ok());
  made->scorer->Append(0, std::vector<Position>{0});
  EXPECT_EQ(made->scorer->Scores(0).size(), 1u) << "what was made goes on";
  EXPECT_THAT(MakePolicy({.name = "second"}, context_).status().message(),
              HasSubstr("unknown policy"));
  EXPECT_THAT(MakePolicy({.name = "h2o", .scorer = "second"}, context_).status().message(),
              HasSubstr("unknown scorer"));
  for (const char* name : {"first", "third", "h2o"}) {
    EXPECT_TRUE(MakePolicy({.name = name, .budget = kQuarter}, context_).ok()) << name;
  }
  EXPECT_TRUE(registry_.Add({.name = "second", .make_scorer = SomeScorer}).ok());
}

TEST_F(PolicyRegistryTest, RefusesNamesThatAreTakenOrNoNames) {
  for (const char* name : {"h2o", "recency"}) {
    const Status status = registry_.Add({.name = name, .make_scorer = SomeScorer});
    EXPECT_EQ(status.message(),
              "policy \"" + std::string(name) + "\": there is a policy or scorer of that name");
  }
  for (const char* name : {"", "two words", "a:b", "Upper"}) {
    const Status status = registry_.Add({.name = name, .make_scorer = SomeScorer});
    EXPECT_EQ(status.message(), "policy \"" + std::string(name) +
                                    "\": a name has letters from a to z, digits and _ alone");
  }
  EXPECT_EQ(registry_.Add({.name = "without_scorer"}).message(),
            "policy \"without_scorer\": nothing makes its scorer");
  for (const char* name : {"h2o", "nobodys"}) {
    const Status status = registry_.Remove(name);
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "policy \"" + std::string(name) + "\": it is not an added policy");
  }
}

TEST(BuiltinPolicies, AreFoundBehindWhatChangesThem) {
  for (const char* name : {"h2o", "windowed:h2o", "windowed:h2o:w=4", "h2o+scorer=random",
                           "windowed:h2o:w=4+scorer=random"}) {
    const PolicyInfo* info = FindBuiltinPolicy(name);
    ASSERT_NE(info, nullptr) << name;
    EXPECT_EQ(info->name, "h2o");
  }
  for (const char* name : {"", "h20", "windowed:", "random+h2o"}) {
    const PolicyInfo* info = FindBuiltinPolicy(name);
    EXPECT_TRUE(info == nullptr || info->name != "h2o") << name;
  }
}

TEST(BuiltinPolicies, AreNamedOnceAndDescribed) {
  std::set<std::string_view> names;
  for (const PolicyInfo& info : BuiltinPolicies()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_FALSE(info.source.empty()) << info.name;
  }
  EXPECT_THAT(names, UnorderedElementsAreArray(kPolicyNames));
  std::set<std::string_view> scorers;
  for (const ScorerInfo& info : BuiltinScorers()) {
    EXPECT_TRUE(scorers.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
  }
  // A policy that has a scorer of its own gives it its name.
  std::set<std::string_view> expected(std::begin(kPolicyNames), std::end(kPolicyNames));
  for (const char* other : {"full", "streaming", "streaming_rerotated", "quest"}) {
    expected.erase(other);
  }
  EXPECT_EQ(scorers, expected);
}

struct Made {
  PolicySpec spec;
  const char* name;
  Granularity granularity;
  const char* scorer;
  const char* placement;  // empty: none
  EngineTiers tiers = {};
};

TEST(MakePolicy, WhereLayersHaveWindowsTheFullCacheIsOneOfEachLayer) {
  PolicyContext context = kSmolLm2Context;
  EXPECT_EQ(MakePolicy({}, context)->granularity, Granularity::kToken);
  context.shape.windows.assign(30, 0);
  EXPECT_EQ(MakePolicy({}, context)->granularity, Granularity::kToken);
  context.shape.windows[7] = 512;
  EXPECT_EQ(MakePolicy({}, context)->granularity, Granularity::kLayer);
  EXPECT_EQ(MakePolicy({.granularity = Granularity::kHead}, context)->granularity,
            Granularity::kHead);
  const PolicySpec attention = {.name = "attention", .budget = Rows(1000)};
  EXPECT_EQ(MakePolicy(attention, context)->granularity, Granularity::kToken);
}

TEST(MakePolicy, BytesAreOfTheStreamsThatThereAre) {
  PolicyContext context = kSmolLm2Context;
  context.shape.kv_heads_by_layer.assign(30, 3);
  context.shape.kv_heads_by_layer[0] = 1;
  // 88 rows of 256 bytes a token.
  const PolicySpec spec = {.name = "attention", .budget = Bytes(88 * 256 * 200)};
  EXPECT_THAT(MakePolicy(spec, context)->placement->Name(), HasSubstr("rows=200"));
}

TEST(MakePolicy, FollowsTheTable) {
  const auto kToken = Granularity::kToken;
  const auto kHead = Granularity::kHead;
  const Made cases[] = {
      {{}, "full", kToken, "recency", ""},
      {{.name = "full", .scorer = "attention"}, "full+scorer=attention", kToken, "attention", ""},
      {{.name = "streaming"},
       "streaming",
       kToken,
       "recency",
       "sinks_window:sinks=4,window=512,interval=1"},
      {{.name = "streaming", .budget = Rows(1024), .sinks = 8},
       "streaming",
       kToken,
       "recency",
       "sinks_window:sinks=8,window=1016,interval=1"},
      {{.name = "h2o"}, "h2o", kHead, "h2o", "heavy_recent:heavy=4,recent=512,interval=1"},
      {{.name = "h2o", .params = {{"heavy", "64"}, {"recent", "32"}}, .interval = 16},
       "h2o",
       kHead,
       "h2o",
       "heavy_recent:heavy=64,recent=32,interval=16"},
      {{.name = "h2o", .scorer = "h2o", .budget = Rows(1025)},
       "h2o",
       kHead,
       "h2o",
       "heavy_recent:heavy=512,recent=513,interval=1"},
      {{.name = "h2o",
        .scorer = "random",
        .budget = Percent(20),
        .granularity = Granularity::kLayer,
        .seed = 5},
       "h2o+scorer=random",
       Granularity::kLayer,
       "random:seed=5",
       "heavy_recent:percent=20,interval=1"},
      {{.name = "attention", .budget = Rows(1024)},
       "attention",
       kToken,
       "attention",
       "budget:rows=1024,sinks=4,window=128,interval=64"},
      {{.name = "attention",
        .scorer = "h2o",
        .budget = Percent(50),
        .sinks = 0,
        .window = 0,
        .interval = 1,
        .granularity = kHead},
       "attention+scorer=h2o",
       kHead,
       "h2o",
       "budget:percent=50,sinks=0,window=0,interval=1"},
      {{.name = "random", .budget = Rows(132)},
       "random",
       kToken,
       "random:seed=0",
       "budget:rows=132,sinks=4,window=128,interval=64"},
      {{.name = "recency", .budget = Bytes(23040 * 200 + 23039)},
       "recency",
       kToken,
       "recency",
       "budget:rows=200,sinks=4,window=128,interval=64"},
      {{.name = "recency", .budget = Bytes(1e18)},
       "recency",
       kToken,
       "recency",
       "budget:rows=268435456,sinks=4,window=128,interval=64"},
  };
  for (const Made& c : cases) {
    const Policy policy = Make(c.spec);
    ASSERT_NE(policy.scorer, nullptr) << c.name;
    EXPECT_EQ(policy.name, c.name);
    EXPECT_EQ(policy.granularity, c.granularity) << c.name;
    EXPECT_EQ(policy.scorer->Name(), c.scorer) << c.name;
    EXPECT_EQ(policy.placement ? policy.placement->Name() : "", c.placement) << c.name;
    EXPECT_EQ(policy.selector, nullptr) << c.name;
  }
}

TEST(MakePolicy, WithTiersThePolicyNamesScorerAndGranularityAlone) {
  const auto kToken = Granularity::kToken;
  const auto kHead = Granularity::kHead;
  const TierShares tiers = {.t0_share = 0.3, .t2_share = 0.25, .evict_share = 0.1};
  const char* defaults =
      "hierarchy(t0=30%,t2=25%:int8,evict=10% of generated,sinks=4,window=128,interval=64)";
  const Made cases[] = {
      {{.tiers = TierShares()},
       "attention",
       kToken,
       "attention",
       "hierarchy(t0=50%,t2=0%:int8,evict=0% of generated,sinks=4,window=128,interval=64)"},
      {{.tiers = tiers}, "lag_kv", kToken, "lag_kv:chunk=64", defaults},
      {{.tiers = TierShares{.evict_beyond_caps = true}},
       "lag_kv",
       kToken,
       "lag_kv:chunk=64",
       "hierarchy(t0=536870912 bytes,t1=none,t2=0%:int8,evict=0% of "
       "generated or caps,sinks=4,window=128,interval=64)",
       {.t0_cap_bytes = 512 << 20, .t1 = T1Place::kNone}},
      {{.name = "attention", .tiers = tiers}, "attention", kToken, "attention", defaults},
      {{.scorer = "h2o", .tiers = tiers}, "lag_kv+scorer=h2o", kToken, "h2o", defaults},
      {{.name = "h2o", .tiers = tiers}, "h2o", kHead, "h2o", defaults},
      {{.name = "streaming", .tiers = tiers}, "streaming", kToken, "recency", defaults},
      {{.name = "h2o",
        .scorer = "random",
        .sinks = 0,
        .window = 1,
        .interval = 2,
        .granularity = kToken,
        .tiers = TierShares{.evict_share = 0.035, .evict_of = EvictOf::kAlive},
        .seed = 5},
       "h2o+scorer=random",
       kToken,
       "random:seed=5",
       "hierarchy(t0=100%,t1=none,t2=0%:int4,evict=3.5% of alive,sinks=0,window=1,interval=2)",
       {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4}},
      {{.tiers = TierShares()},
       "attention",
       kToken,
       "attention",
       "hierarchy(t0=536870912 bytes,t1=1073741824 bytes,t2=0%:int8,evict=0% of generated,sinks=4,"
       "window=128,interval=64)",
       {.t0_cap_bytes = 512 << 20, .t1_cap_bytes = 1 << 30}},
  };
  for (const Made& c : cases) {
    const Policy policy = Make(c.spec, c.tiers);
    EXPECT_EQ(policy.name, c.name);
    EXPECT_EQ(policy.granularity, c.granularity) << c.name;
    ASSERT_NE(policy.scorer, nullptr) << c.name;
    EXPECT_EQ(policy.scorer->Name(), c.scorer) << c.name;
    ASSERT_NE(policy.placement, nullptr) << c.name;
    EXPECT_EQ(policy.placement->Name(), c.placement) << c.name;
  }
}

TEST(MakePolicy, TheIdentityOfAPolicyIsItsNameAndParameters) {
  const PolicySpec h2o = {.name = "h2o", .params = {{"heavy", "32"}, {"recent", "32"}}};
  const auto changed = [&](const auto& change) {
    PolicySpec spec = h2o;
    change(&spec);
    return *Make(spec).identity;
  };
  const PolicySpec identity = *Make(h2o).identity;
  EXPECT_EQ(identity.name, "h2o");
  EXPECT_EQ(identity, *Make(h2o).identity);
  EXPECT_EQ(identity, changed([](PolicySpec* spec) { spec->seed = 7; })) << "h2o draws nothing";
  for (const PolicySpec& other :
       {changed([](PolicySpec* spec) { spec->params["heavy"] = "48"; }),
        changed([](PolicySpec* spec) { spec->scorer = "random"; }),
        changed([](PolicySpec* spec) { spec->granularity = Granularity::kLayer; }),
        *Make({.name = "attention", .budget = Percent(50)}).identity}) {
    EXPECT_NE(identity, other) << other.name;
  }
  const auto attention = [](PolicySpec spec) {
    spec.name = "attention";
    if (!spec.tiers.has_value()) spec.budget = Percent(50);
    return *Make(spec).identity;
  };
  EXPECT_NE(attention({.sinks = 2}), attention({.sinks = 3}));
  EXPECT_NE(attention({.window = 8}), attention({.window = 16}));
  EXPECT_NE(attention({.interval = 8}), attention({.interval = 16}));
  EXPECT_NE(attention({.tiers = TierShares{.t0_share = 0.5}}),
            attention({.tiers = TierShares{.t0_share = 0.25}}));
  EXPECT_NE(attention({.scorer = "random", .seed = 1}), attention({.scorer = "random", .seed = 2}));
}

TEST(MakePolicy, ABudgetRowsAmongParametersAndMarksEvictBeforeTiersPlace) {
  const EngineTiers in_t2 = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4};
  const TierShares half = {.t2_share = 0.5}, old = {.t2_rows = T2Rows::kOld};
  const auto placement = [&](const PolicySpec& spec) {
    return Make(spec, in_t2).placement->Name();
  };
  EXPECT_EQ(placement({.name = "attention", .budget = Percent(50), .window = 16, .tiers = half}),
            "budget:percent=50,sinks=4,window=16,interval=64 in "
            "hierarchy(t0=100%,t1=none,t2=50%:int4,evict=0% of generated,sinks=4,window=16,"
            "interval=64)");
  EXPECT_EQ(placement({.name = "h2o", .params = {{"heavy", "4"}}, .tiers = old}),
            "heavy_recent:heavy=4,recent=512,interval=1 in old_rows(t2=int4,first=64,newest=64)");
  EXPECT_EQ(placement({.name = "streaming", .tiers = old}),
            "sinks_window:sinks=4,window=512,interval=1 in "
            "old_rows(t2=int4,first=64,newest=64)");
  EXPECT_EQ(placement({.name = "h2o", .tiers = half}),
            "hierarchy(t0=100%,t1=none,t2=50%:int4,evict=0% of generated,sinks=4,window=128,"
            "interval=64)");
  // A share is evicted under old rows as it is without them.
  EXPECT_EQ(placement({.tiers = TierShares{.t2_rows = T2Rows::kOld, .evict_share = 0.2}}),
            "hierarchy(t0=100%,t1=none,t2=0%:int8,evict=20% of generated,sinks=4,window=128,"
            "interval=64) in old_rows(t2=int4,first=64,newest=64)");
  EXPECT_EQ(ErrorOf({.budget = Percent(50), .tiers = TierShares()}),
            "policy \"full\" takes no budget; it takes scorer, granularity, sinks, window, "
            "interval; policies "
            "that evict take one, such as h2o");
  EXPECT_EQ(
      ErrorOf({.name = "h2o", .budget = Percent(50), .tiers = TierShares{.evict_share = 0.25}}),
      "tiers.evict_share: evicting 25% cannot be combined with policy \"h2o\" and a budget of "
      "50%: both say how many rows are evicted");
  EXPECT_EQ(ErrorOf({.tiers = TierShares{.evict_beyond_caps = true}}, {.t1 = T1Place::kNone}),
            "tiers.evict_beyond_caps: expected a cap on T0, and one on T1 unless there is no T1");
  EXPECT_EQ(ErrorOf({.name = "h20", .tiers = TierShares()}),
            "unknown policy \"h20\"; did you mean h2o? valid: " + ValidPolicies());
  EXPECT_EQ(ErrorOf({.interval = 0, .tiers = TierShares()}), "interval 0: expected 1 to 268435456");
  EXPECT_EQ(ErrorOf({.sinks = -1, .tiers = TierShares()}), "sinks -1: expected 0 to 268435456");
}

TEST(MakePolicy, RefusesTiersThatMeanNothing) {
  const auto error_of = [](const TierShares& tiers) { return ErrorOf({.tiers = tiers}); };
  EXPECT_EQ(error_of({.t0_share = 1.01}), "T0 of 101%: expected 0% to 100%");
  EXPECT_EQ(error_of({.t0_share = NAN}), "T0 of nan%: expected 0% to 100%");
  EXPECT_EQ(error_of({.t2_share = -0.5}), "T2 of -50%: expected 0% to 100%");
  EXPECT_EQ(error_of({.evict_share = 2}), "evicted share of 200%: expected 0% to 100%");
  EXPECT_EQ(ErrorOf({.tiers = TierShares()}, {.t1 = T1Place::kNone, .t1_cap_bytes = 5}),
            "T1 is none and has a cap of 5 bytes");
}

TEST(MakePolicy, RefusesCapsThatDoNotHoldTheProtectedRows) {
  const auto error_of = [](int window, const EngineTiers& tiers, RowsAvailable rows) {
    PolicyContext context = ContextWith(tiers);
    context.rows_available = rows;
    return MakePolicy({.window = window, .tiers = TierShares()}, context).status().Text();
  };
  const EngineTiers t0_alone = {.t0_cap_bytes = 6 << 20, .t1 = T1Place::kNone};
  EXPECT_EQ(error_of(128, t0_alone, {.t0 = 192}),
            "T0 of 6 MiB holds 128 rows of each group and 64 in reserve, there is no T1; 132 "
            "rows must stay in full precision (132 protected, 0 others)");
  EXPECT_EQ(error_of(128, t0_alone, {.t0 = 196}), "");
  const EngineTiers both = {.t0_cap_bytes = 6 << 20, .t1 = T1Place::kHost, .t1_cap_bytes = 6 << 20};
  EXPECT_EQ(error_of(128, both, {.t0 = 192, .t1 = 192}), "");
  EXPECT_EQ(error_of(300, both, {.t0 = 192, .t1 = 192}),
            "T0 of 6 MiB holds 128 rows of each group and 64 in reserve, T1 of 6 MiB "
            "128 likewise; 304 rows must stay in full precision (304 protected, 0 others)");
}

TEST(MakePolicy, EveryScorerGoesWithEveryPolicyAtEveryGranularity) {
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    for (const ScorerInfo& scorer : BuiltinScorers()) {
      for (const auto granularity :
           {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
        PolicySpec spec = {.name = std::string(policy.name),
                           .scorer = std::string(scorer.name),
                           .granularity = granularity};
        if (policy.name != "full") spec.budget = Rows(256);
        // Rows go by the sign of the model's marks, which no other score has.
        if (policy.name == "dms" && scorer.name != "dms") {
          EXPECT_THAT(ErrorOf(*DropUnusedOptions(spec)), HasSubstr("the model's own marks"));
          continue;
        }
        const Policy made = Make(*DropUnusedOptions(spec));
        EXPECT_EQ(made.granularity, granularity);
        EXPECT_THAT(made.scorer->Name(), HasSubstr(std::string(scorer.name)));
      }
    }
  }
}

TEST(MakePolicy, RefusesToLookAheadWhereNothingIsForeseen) {
  PolicyContext blind = kSmolLm2Context;
  blind.foresight = nullptr;
  const auto refusal = [&](const PolicySpec& spec) {
    const Status status = MakePolicy(spec, blind).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const std::string why =
      ": its scorer \"oracle\" needs the attention that rows will receive, which is unknown for "
      "text that is still to be generated; ebb-lab fidelity replays a given text";
  EXPECT_EQ(refusal({.name = "oracle", .budget = Percent(50)}), "policy \"oracle\"" + why);
  EXPECT_EQ(refusal({.name = "windowed:h2o", .scorer = "oracle"}),
            "policy \"windowed:h2o+scorer=oracle\"" + why);
  EXPECT_EQ(refusal({.scorer = "oracle", .tiers = TierShares()}),
            "policy \"attention+scorer=oracle\"" + why);
  EXPECT_TRUE(Make({.name = "oracle", .budget = Percent(50)}).looks_ahead);
  EXPECT_FALSE(Make({.name = "attention", .budget = Percent(50)}).looks_ahead);
}

TEST(MakePolicy, AModelThatMarksRowsSetsTheWindowUnlessTheUserDoes) {
  const auto placement = [](const PolicySpec& spec) { return Make(spec).placement->Name(); };
  EXPECT_EQ(placement({.name = "dms"}), "delayed:window=512");
  EXPECT_EQ(placement({.name = "dms", .window = 16}), "delayed:window=16");
  EXPECT_EQ(ErrorOf({.name = "dms", .window = 0}), "policy \"dms\": window 0: expected 1 or more");
  PolicyContext shifted = kSmolLm2Context;
  shifted.eviction_shift = 5;
  EXPECT_TRUE(MakePolicy({.name = "dms", .window = 5}, shifted).ok());
  EXPECT_EQ(MakePolicy({.name = "dms", .window = 4}, shifted).status().message(),
            "policy \"dms\": window 4: expected 5 or more: in this model the token that marks a "
            "row is 5 tokens after it (attention.dms.shift)");
  EXPECT_EQ(MakePolicy({.name = "dms"}, shifted)->scorer->Name(), "dms:shift=5");
  EXPECT_EQ(ErrorOf({.name = "dms", .budget = Rows(64)}),
            "policy \"dms\" takes no budget; it takes scorer, granularity, window");
  PolicyContext unmarked = kSmolLm2Context;
  unmarked.eviction_window = 0;
  const Status status = MakePolicy({.name = "dms"}, unmarked).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "policy \"dms\": its scorer \"dms\" reads which rows the model itself marks, and this "
            "model marks none: its file has no attention.dms.layout (docs/dev/formats.md)");
}

TEST(MakePolicy, UnknownNamesListTheValidOnes) {
  EXPECT_EQ(ErrorOf({.name = "h20"}),
            "unknown policy \"h20\"; did you mean h2o? valid: " + ValidPolicies());
  EXPECT_THAT(ErrorOf({.scorer = "x"}),
              HasSubstr("unknown scorer \"x\"; valid: attention, h2o, random, recency, "));
  EXPECT_EQ(ErrorOf({.name = "h2o", .params = {{"light", "1"}}}),
            "policy \"h2o\" has no parameter \"light\"; valid: heavy, recent, sinks, split");
  EXPECT_EQ(ErrorOf({.name = "full", .params = {{"light", "1"}}}),
            "policy \"full\" has no parameter \"light\"; it has none");
}

TEST(MakePolicy, RefusesOptionsThatThePolicyDoesNotTake) {
  EXPECT_EQ(ErrorOf({.budget = Rows(64)}),
            "policy \"full\" takes no budget; it takes scorer, granularity; policies that evict "
            "take one, "
            "such as h2o");
  EXPECT_EQ(ErrorOf({.sinks = 4}), "policy \"full\" takes no sinks; it takes scorer, granularity");
  EXPECT_EQ(ErrorOf({.interval = 4}),
            "policy \"full\" takes no interval; it takes scorer, granularity");
  EXPECT_EQ(ErrorOf({.name = "h2o", .window = 64}),
            "policy \"h2o\" takes no window; it takes scorer, granularity, budget, "
            "interval, heavy=, recent=, sinks=, split=");
}

TEST(MakePolicy, AnOptionThatThePolicyTakesAsAParameterIsRefusedWithTheFormToWrite) {
  EXPECT_EQ(ErrorOf({.name = "h2o", .sinks = 3}),
            "policy \"h2o\" takes sinks as a parameter and not as an option; write h2o:sinks=3");
}

TEST(MakePolicy, RefusesValuesOutOfRange) {
  const PolicySpec base = {.name = "attention", .budget = Rows(500)};
  PolicySpec spec = base;
  spec.sinks = -1;
  EXPECT_EQ(ErrorOf(spec), "sinks -1: expected 0 to 268435456");
  spec = base;
  spec.window = 268435457;
  EXPECT_EQ(ErrorOf(spec), "window 268435457: expected 0 to 268435456");
  spec = base;
  spec.interval = 0;
  EXPECT_EQ(ErrorOf(spec), "interval 0: expected 1 to 268435456");
  for (const char* text : {"-1", "x", "", "1.5", "5 ", "268435457", "99999999999"}) {
    EXPECT_EQ(ErrorOf({.name = "h2o", .params = {{"heavy", text}}}),
              std::string("policy \"h2o\": heavy=\"") + text + "\": expected 0 to 268435456");
  }
}

// Each of them sizes memory that is there before a row is, or grows with every row.
TEST(MakePolicy, RefusesToKeepMoreTokensThanTheContextHas) {
  const std::pair<const char*, const char*> cases[] = {
      {"attention_recent", "last"}, {"redundancy", "neighbours"},
      {"combined", "neighbours"},   {"thinkv", "tau"},
      {"thinkv_original", "tau"},   {"segment_hs", "tau"}};
  PolicyContext small = kSmolLm2Context;
  small.max_tokens = 200;
  for (const auto& [policy, param] : cases) {
    const auto refusal = [&](const std::string& text, const PolicyContext& context) {
      const PolicySpec spec = {
          .name = policy, .params = {{param, text}}, .budget = {Budget::Unit::kPercent, 50}};
      const Status status = MakePolicy(spec, context).status();
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kInvalidArgument);
      return status.message();
    };
    const std::string what = "policy \"" + std::string(policy) + "\": " + param + "=";
    EXPECT_EQ(refusal("268435456", kSmolLm2Context), what + "\"268435456\": expected 1 to 1024");
    EXPECT_EQ(refusal("1025", kSmolLm2Context), what + "\"1025\": expected 1 to 1024");
    EXPECT_EQ(refusal("201", small), what + "\"201\": expected 1 to 200");
    EXPECT_EQ(refusal("200", small), "");
  }
}

TEST(MakePolicy, RowsGoByTheSignOfAScorerThatTellsRoomAlone) {
  const auto placement = [](const char* policy, const char* scorer) {
    return Make({.name = policy, .scorer = scorer, .budget = Rows(64)}).placement->Name();
  };
  for (const char* scorer : {"", "thinkv", "thinkv_original", "segment_hs"}) {
    EXPECT_EQ(placement("thinkv", scorer), "segments:rows=64,window=quarter,interval=1") << scorer;
  }
  EXPECT_EQ(placement("segment_hs", ""), "prompt_segments:rows=64,window=quarter,interval=1");
  // z-scores are below 0 for about half of the rows.
  for (const char* scorer : {"epikv", "attention", "dms"}) {
    EXPECT_EQ(placement("thinkv", scorer),
              "segments:rows=64,window=quarter,interval=1,below_0=stays")
        << scorer;
  }
  EXPECT_EQ(placement("segment_hs", "epikv"),
            "prompt_segments:rows=64,window=quarter,interval=1,below_0=stays");
  EXPECT_EQ(placement("raas", "thinkv"), "recent_quarter:rows=64,window=quarter,interval=1");
}

TEST(MakePolicy, RefusesBudgetsThatMeanNothing) {
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Rows(0)}), "budget of 0 rows is not above 0");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Percent(-3)}), "budget of -3% is not above 0");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Percent(NAN)}), "budget of nan% is not above 0");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Rows(INFINITY)}),
            "budget of inf rows is not above 0");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Percent(101)}), "budget of 101% is more than all");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Rows(1.5)}),
            "budget of 1.5 rows is not a whole number of rows up to 268435456");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = Bytes(23039)}),
            "budget of 23039 bytes holds no row: a token takes 23040 bytes");
}

TEST(MakePolicy, ACompressionRatioIsOfInputAndMaximumGeneration) {
  const Budget ratio = {Budget::Unit::kCompression, 8};
  EXPECT_EQ(Make({.name = "tova", .budget = ratio}).placement->Name(),
            "heavy_recent:heavy=1024,recent=0,interval=1,prefill=dense");
  EXPECT_EQ(Make({.name = "h2o", .budget = ratio, .most_tokens = 1001}).placement->Name(),
            "heavy_recent:heavy=62,recent=63,interval=1");
  EXPECT_EQ(ErrorOf({.name = "h2o", .budget = ratio, .most_tokens = 7}),
            "budget of 1/8 of 7 tokens holds no row");
  EXPECT_EQ(ErrorOf({.name = "attention", .budget = ratio, .most_tokens = 800}),
            "budget of 1/8 (100 rows) is smaller than the 132 protected rows (4 sinks + 128 "
            "window)");
}

TEST(MakePolicy, RowsBeyondTheProtectedGoWithPoliciesThatProtectAPrompt) {
  const Budget beyond = {Budget::Unit::kBeyond, 512};
  EXPECT_EQ(Make({.name = "epikv", .budget = beyond}).placement->Name(),
            "recent_quarter:beyond=512,window=quarter,interval=1");
  EXPECT_EQ(Make({.name = "attention", .budget = beyond}).placement->Name(),
            "budget:beyond=512,sinks=4,window=128,interval=64");
  EXPECT_EQ(ErrorOf({.name = "tova", .budget = beyond}),
            "policy \"tova\": a budget of +512 rows is of rows beyond a protected prompt, which it "
            "has not");
}

TEST(MakePolicy, AWindowMakesAnyPolicyDecideEveryWSteps) {
  EXPECT_EQ(Make({.name = "windowed:tova", .budget = Rows(64)}).placement->Name(),
            "heavy_recent:heavy=64,recent=0,interval=64,prefill=dense");
  const Policy policy = Make(
      {.name = "windowed:raas", .params = {{"w", "175"}, {"alpha", "5e-4"}}, .budget = Rows(64)});
  EXPECT_EQ(policy.name, "windowed:raas");
  EXPECT_EQ(policy.scorer->Name(), "raas:alpha=0.0005");
  EXPECT_EQ(policy.placement->Name(), "recent_quarter:rows=64,window=quarter,interval=175");
  EXPECT_EQ(Make({.name = "windowed:h2o", .budget = Rows(64), .interval = 5}).placement->Name(),
            "heavy_recent:heavy=32,recent=32,interval=5");
  EXPECT_EQ(ErrorOf({.name = "windowed:full"}),
            "policy \"full\" takes no decisions that a window could gather");
  EXPECT_EQ(ErrorOf({.name = "windowed:h20"}),
            "unknown policy \"h20\"; did you mean h2o? valid: " + ValidPolicies());
  EXPECT_EQ(ErrorOf({.name = "tova", .params = {{"w", "5"}}, .budget = Rows(64)}),
            "policy \"tova\" has no parameter \"w\"; it has none");
}

TEST(MakePolicy, ParametersReachTheScorerAlsoUnderTheHierarchy) {
  const Policy policy = Make({.name = "lazy_eviction",
                              .params = {{"h1", "none"}, {"h2", "tanh"}, {"alpha", "5e-4"}},
                              .tiers = TierShares()});
  EXPECT_EQ(policy.scorer->Name(), "lazy_eviction:alpha=0.0005,heads=query,h1=none,h2=tanh");
  EXPECT_EQ(Make({.name = "full", .params = {{"last", "8"}}, .scorer = "attention_recent"})
                .scorer->Name(),
            "attention_recent:last=8");
}

TEST(MakePolicy, PoliciesThatDoMoreThanEvictSaySo) {
  const Policy quest = Make({.name = "quest", .budget = Percent(25)});
  EXPECT_EQ(quest.placement, nullptr);
  ASSERT_NE(quest.selector, nullptr);
  EXPECT_EQ(quest.selector->Name(), "quest:percent=25,page=16,keys=f16");
  EXPECT_EQ(Make({.name = "streaming"}).key_turns, KeyTurns::kWhenFull);
  EXPECT_EQ(Make({.name = "streaming_rerotated"}).key_turns, KeyTurns::kAfterEviction);
  EXPECT_THAT(ErrorOf({.name = "streaming_rerotated", .tiers = TierShares()}),
              HasSubstr("keys in T1 and T2 cannot be re-rotated"));
}

TEST(MakePolicy, RefusesABudgetSmallerThanSinksAndWindow) {
  EXPECT_EQ(ErrorOf({.name = "attention", .budget = Rows(100)}),
            "budget of 100 rows is smaller than the 132 protected rows (4 sinks + 128 window)");
  EXPECT_EQ(ErrorOf({.name = "attention", .budget = Bytes(23040 * 100)}),
            "budget of 2.2 MiB (100 rows) is smaller than the 132 protected rows (4 sinks + "
            "128 window)");
  EXPECT_EQ(ErrorOf({.name = "streaming", .budget = Rows(4)}),
            "budget of 4 rows has no room for a window after 4 sinks");
  EXPECT_THAT(ErrorOf({.name = "random"}), HasSubstr("policy \"random\" needs a budget"));
}

TEST(OnlyWhatItTakesTest, DropsWhatThePolicyWouldRefuse) {
  PolicySpec spec;
  spec.budget = {Budget::Unit::kPercent, 50};
  spec.sinks = 2;
  spec.window = 4;
  spec.interval = 8;
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    spec.name = policy.name;
    const auto taken = DropUnusedOptions(spec);
    ASSERT_TRUE(taken.ok()) << policy.name;
    const auto made = MakePolicy(*taken, kSmolLm2Context);
    EXPECT_TRUE(made.ok()) << made.status().message();
  }
  spec.name = "full";
  EXPECT_EQ(DropUnusedOptions(spec)->budget.unit, Budget::Unit::kNone);
  EXPECT_EQ(DropUnusedOptions(spec)->window, std::nullopt);
  spec.name = "attention";
  EXPECT_EQ(DropUnusedOptions(spec)->budget.value, 50);
  EXPECT_EQ(DropUnusedOptions(spec)->window, 4);
  spec.name = "nonsense";
  EXPECT_EQ(DropUnusedOptions(spec).status().code(), StatusCode::kInvalidArgument);
}

TEST(DrawsLotsTest, OnlyWhatIsRandomDoes) {
  EXPECT_TRUE(*IsRandomized({.name = "random"}));
  EXPECT_TRUE(*IsRandomized({.name = "attention", .scorer = "random"}));
  EXPECT_TRUE(*IsRandomized({.name = "windowed:random"}));
  for (const char* name : {"full", "h2o", "attention", "lazy_eviction", "quest"}) {
    EXPECT_FALSE(*IsRandomized({.name = name})) << name;
  }
  EXPECT_FALSE(IsRandomized({.name = "nonsense"}).ok());
}

// A layer would reuse the pages that the queries of another one chose.
TEST(MakePolicy, LayersThatShareRowsReuseNoChoice) {
  PolicyContext context = kSmolLm2Context;
  PolicySpec spec;
  spec.tiers = TierShares{.t1_read = T1Read::kSelect, .t1_reuse = 0.8};
  EXPECT_TRUE(MakePolicy(spec, context).ok());
  for (int layer = 0; layer < context.shape.num_layers; ++layer) {
    context.shape.layers_read.push_back(layer);
  }
  context.shape.layers_read.push_back(0);
  const auto refused = MakePolicy(spec, context);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().field(), "tiers.t1_reuse");
  EXPECT_THAT(refused.status().message(), HasSubstr("layers of this model share rows"));
}

}  // namespace
}  // namespace ebb
