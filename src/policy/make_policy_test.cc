#include <cmath>
#include <set>

#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr Budget Rows(double n) { return {Budget::Unit::kRows, n}; }
constexpr Budget Percent(double p) { return {Budget::Unit::kPercent, p}; }
constexpr Budget Bytes(double n) { return {Budget::Unit::kBytes, n}; }

// SmolLM2 with f16 rows: 23,040 bytes a token.
const PolicyContext kContext = {.shape = {.num_layers = 30,
                                          .num_q_heads = 9,
                                          .num_kv_heads = 3,
                                          .head_dim = 64,
                                          .embed_dim = 576,
                                          .vocab_size = 49152,
                                          .trained_context = 8192},
                                .row_bytes = 256,
                                .max_tokens = 8192};

Policy Make(const PolicySpec& spec) {
  Result<Policy> policy = MakePolicy(spec, kContext);
  EXPECT_TRUE(policy.ok()) << policy.status().ToString();
  return policy.ok() ? *std::move(policy) : Policy{};
}

std::string ErrorOf(const PolicySpec& spec) {
  const Status status = MakePolicy(spec, kContext).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return status.message();
}

TEST(BuiltinPolicies, AreNamedOnceAndDescribed) {
  std::set<std::string_view> names;
  for (const PolicyInfo& info : BuiltinPolicies()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
    EXPECT_FALSE(info.source.empty()) << info.name;
  }
  EXPECT_THAT(names,
              UnorderedElementsAre("full", "streaming", "h2o", "attention", "random", "recency"));
  std::set<std::string_view> scorers;
  for (const ScorerInfo& info : BuiltinScorers()) {
    EXPECT_TRUE(scorers.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.description.empty()) << info.name;
  }
  EXPECT_THAT(scorers, UnorderedElementsAre("attention", "h2o", "random", "recency"));
}

struct Made {
  PolicySpec spec;
  const char* name;
  Granularity granularity;
  const char* scorer;
  const char* placement;  // empty: none
};

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

TEST(MakePolicy, EveryScorerGoesWithEveryPolicyAtEveryGranularity) {
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    for (const ScorerInfo& scorer : BuiltinScorers()) {
      for (const auto granularity :
           {Granularity::kToken, Granularity::kLayer, Granularity::kHead}) {
        PolicySpec spec = {.name = std::string(policy.name),
                           .scorer = std::string(scorer.name),
                           .granularity = granularity};
        if (policy.name != "full") spec.budget = Rows(256);
        const Policy made = Make(spec);
        EXPECT_EQ(made.granularity, granularity);
        EXPECT_THAT(made.scorer->Name(), HasSubstr(std::string(scorer.name)));
      }
    }
  }
}

TEST(MakePolicy, UnknownNamesListTheValidOnes) {
  EXPECT_EQ(ErrorOf({.name = "h20"}),
            "unknown policy \"h20\"; valid: full, streaming, h2o, attention, random, recency");
  EXPECT_EQ(ErrorOf({.scorer = "x"}),
            "unknown scorer \"x\"; valid: attention, h2o, random, recency");
  EXPECT_EQ(ErrorOf({.name = "h2o", .params = {{"light", "1"}}}),
            "policy \"h2o\" has no parameter \"light\"; valid: heavy, recent");
  EXPECT_EQ(ErrorOf({.name = "full", .params = {{"light", "1"}}}),
            "policy \"full\" has no parameter \"light\"; it has none");
}

TEST(MakePolicy, RefusesOptionsThatThePolicyDoesNotTake) {
  EXPECT_EQ(ErrorOf({.budget = Rows(64)}),
            "policy \"full\" takes no --budget; it takes --scorer, --granularity");
  EXPECT_EQ(ErrorOf({.sinks = 4}),
            "policy \"full\" takes no --sinks; it takes --scorer, --granularity");
  EXPECT_EQ(ErrorOf({.interval = 4}),
            "policy \"full\" takes no --interval; it takes --scorer, --granularity");
  EXPECT_EQ(ErrorOf({.name = "h2o", .window = 64}),
            "policy \"h2o\" takes no --window; it takes --scorer, --granularity, --budget, "
            "--interval, heavy=, recent=");
}

TEST(MakePolicy, RefusesValuesOutOfRange) {
  const PolicySpec base = {.name = "attention", .budget = Rows(500)};
  PolicySpec spec = base;
  spec.sinks = -1;
  EXPECT_EQ(ErrorOf(spec), "--sinks -1: expected 0 to 268435456");
  spec = base;
  spec.window = 268435457;
  EXPECT_EQ(ErrorOf(spec), "--window 268435457: expected 0 to 268435456");
  spec = base;
  spec.interval = 0;
  EXPECT_EQ(ErrorOf(spec), "--interval 0: expected 1 to 268435456");
  for (const char* text : {"-1", "x", "", "1.5", "5 ", "268435457", "99999999999"}) {
    EXPECT_EQ(ErrorOf({.name = "h2o", .params = {{"heavy", text}}}),
              std::string("policy \"h2o\": heavy=\"") + text + "\": expected 0 to 268435456");
  }
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

TEST(MakePolicy, RefusesABudgetSmallerThanSinksAndWindow) {
  EXPECT_EQ(ErrorOf({.name = "attention", .budget = Rows(100)}),
            "budget of 100 rows is smaller than the 132 protected rows (4 sinks + 128 window)");
  EXPECT_EQ(ErrorOf({.name = "attention", .budget = Bytes(23040 * 100)}),
            "budget of 2304000 bytes (100 rows) is smaller than the 132 protected rows (4 sinks + "
            "128 window)");
  EXPECT_EQ(ErrorOf({.name = "streaming", .budget = Rows(4)}),
            "budget of 4 rows has no room for a window after 4 sinks");
  EXPECT_THAT(ErrorOf({.name = "random"}), HasSubstr("policy \"random\" needs a budget"));
}

}  // namespace
}  // namespace ebb
