#include "apps/ebb/eval/margins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "apps/ebb/eval/names.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

Json Record(const char* policy, const char* budget, double cost, double accuracy) {
  return {{"policy", policy},     {"budget", budget},      {"tiers", ""},        {"options", ""},
          {"accuracy", accuracy}, {"kv_reads", 10 * cost}, {"peak_tokens", cost}};
}

TEST(FrontMargins, AreTheMeanDistanceToRandom) {
  const Json margins = FrontMargins(
      {Record("full", "", 500, 1), Record("h2o", "25%", 100, 0.5), Record("h2o", "50%", 200, 0.9),
       Record("random", "25%", 100, 0.1), Record("random", "50%", 300, 0.3)});
  ASSERT_EQ(margins.size(), 1u);
  EXPECT_EQ(margins[0]["series"], "h2o");
  EXPECT_EQ(margins[0]["over"], "random");
  // From 100 to 200 rows: 0.5 to 0.9 against 0.1 to 0.2.
  EXPECT_NEAR(margins[0]["peak_tokens"].get<double>(), 0.55, 1e-12);
  EXPECT_NEAR(margins[0]["kv_reads"].get<double>(), 0.55, 1e-12);
  EXPECT_THAT(MarginTable(margins), testing::HasSubstr("| h2o | +55.0 | +55.0 |"));
}

TEST(FrontMargins, WithoutRandomTheFirstIsTheOneToBeat) {
  const Json margins =
      FrontMargins({Record("tova", "25%", 100, 0.5), Record("tova", "50%", 200, 0.9),
                    Record("h2o", "25%", 100, 0.4), Record("h2o", "50%", 200, 0.8)});
  ASSERT_EQ(margins.size(), 1u);
  EXPECT_EQ(margins[0]["over"], "tova");
  EXPECT_NEAR(margins[0]["peak_tokens"].get<double>(), -0.1, 1e-12);
}

TEST(FrontMargins, CostsApartHaveNone) {
  const Json margins = FrontMargins({Record("random", "1", 1, 0.1), Record("random", "2", 2, 0.2),
                                     Record("h2o", "1", 10, 0.1), Record("h2o", "2", 20, 0.2)});
  ASSERT_EQ(margins.size(), 1u);
  EXPECT_TRUE(margins[0]["kv_reads"].is_null());
  EXPECT_THAT(MarginTable(margins), testing::HasSubstr("| h2o | - | - |"));
}

TEST(FrontMargins, EvictedSharesOfTheSameTiersAreOneSeries) {
  Json records = {Record("attention", "", 100, 0.5), Record("attention", "", 200, 0.9),
                  Record("random", "", 100, 0.1), Record("random", "", 200, 0.2)};
  const char* tiers[] = {"t0=50% evict=10%", "t0=50% evict=5%", "evict=10%", "evict=5%"};
  for (size_t i = 0; i < 4; ++i) records[i]["tiers"] = tiers[i];
  const Json margins = FrontMargins(records);
  ASSERT_EQ(margins.size(), 1u);
  EXPECT_EQ(margins[0]["series"], "attention, t0=50%");
}

TEST(SplitTiers, TakesTheEvictedShareOut) {
  const auto split = [](const char* tiers) {
    const TierNames names = SplitTiers(tiers);
    return names.series + "|" + names.evicted;
  };
  EXPECT_EQ(split("t0=50% evict=5% of alive"), "t0=50% of alive|evict=5%");
  EXPECT_EQ(split("t0=50% evict=5%"), "t0=50%|evict=5%");
  EXPECT_EQ(split("evict=5% of alive"), "of alive|evict=5%");
  EXPECT_EQ(split("evict=5%"), "|evict=5%");
  EXPECT_EQ(split("lossless=exact drafts=8"), "lossless=exact drafts=8|");
  EXPECT_EQ(split(""), "|");
}

TEST(FrontMargins, OptionsAreNamedWhereTheyAloneDiffer) {
  Json records = {Record("h2o", "25%", 100, 0.5), Record("h2o", "50%", 200, 0.9),
                  Record("h2o", "25%", 100, 0.1), Record("h2o", "50%", 200, 0.2)};
  for (size_t i = 0; i < 4; ++i) records[i]["options"] = i < 2 ? "window=8" : "window=16";
  const Json margins = FrontMargins(records);
  ASSERT_EQ(margins.size(), 1u);
  EXPECT_EQ(margins[0]["series"], "h2o, window=16");
  EXPECT_EQ(margins[0]["over"], "h2o, window=8");
}

TEST(FrontMargins, OneSettingHasNoFront) {
  EXPECT_TRUE(FrontMargins({Record("full", "", 1, 1), Record("h2o", "25%", 1, 1)}).empty());
  EXPECT_EQ(MarginTable(Json::array()), "");
}

}  // namespace
}  // namespace ebb::cli
