#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "apps/common/options/options.h"

namespace ebb::cli {
namespace {

// Returns the options after the command line has been read; fails the test if that fails.
CliOptions Given(const std::vector<std::pair<std::string, std::string>>& given) {
  CliOptions options;
  Status status;
  const std::vector<OptionRow> rows = SharedOptions();
  for (const auto& [name, text] : given) {
    const auto row = std::ranges::find(rows, name, LongName);
    if (row == rows.end()) {
      ADD_FAILURE() << "no option " << name;
    } else if (status.ok()) {
      status = SetOption(*row, text, &options);
    }
  }
  if (status.ok()) status = SettleTiers(&options);
  if (status.ok()) status = SettleLossless(&options);
  ChooseDraft(&options);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return options;
}

TEST(TierOptions, WithoutAnyTheCacheIsFull) {
  const CliOptions options = Given({});
  EXPECT_FALSE(options.engine.tiers.has_value());
  EXPECT_FALSE(options.session.policy.tiers.has_value());
  EXPECT_EQ(options.session.policy.name, "full");
}

TEST(TierOptions, EachGoesToTheEngineOrToTheSession) {
  const CliOptions options =
      Given({{"--t0", "4MiB"}, {"--t1", "host,8MiB"}, {"--t2", "25%:int4"}, {"--evict", "10%"}});
  EXPECT_EQ(options.engine.tiers, (EngineTiers{.t0_cap_bytes = 4 << 20,
                                               .t1 = T1Place::kHost,
                                               .t1_cap_bytes = 8 << 20,
                                               .t2_type = CompressedType::kInt4}));
  EXPECT_EQ(options.session.policy.tiers, (TierShares{.t2_share = 0.25, .evict_share = 0.1}));
}

TEST(TierOptions, APlaceOfT1AloneMakesTiersToo) {
  const CliOptions options = Given({{"--t1", "host"}});
  EXPECT_EQ(options.engine.tiers, EngineTiers{.t1 = T1Place::kHost});
  EXPECT_EQ(options.session.policy.tiers, TierShares());
}

TEST(TierOptions, ACompressedKvTypeIsShortForOldRowsWithoutT1) {
  const CliOptions options = Given({{"--kv-type", "q4"}});
  EXPECT_EQ(options.engine.tiers,
            (EngineTiers{.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4}));
  EXPECT_EQ(options.session.policy.tiers, TierShares{.t2_rows = T2Rows::kOld});
}

TEST(TierOptions, ALosslessSessionHasAT1AndADraft) {
  const CliOptions bare = Given({{"--lossless", ""}});
  EXPECT_EQ(bare.engine.tiers, EngineTiers());
  EXPECT_FALSE(bare.session.policy.tiers.has_value());
  EXPECT_EQ(bare.session.policy.name, "streaming");
  // The place of T1 does not decide about the draft's rows, so the draft keeps its default policy.
  const CliOptions host = Given({{"--lossless", ""}, {"--t1", "host"}});
  EXPECT_EQ(host.engine.tiers, EngineTiers{.t1 = T1Place::kHost});
  EXPECT_FALSE(host.session.policy.tiers.has_value());
  EXPECT_EQ(host.session.policy.name, "streaming");
  // A share does.
  const CliOptions placed = Given({{"--t0", "20%"}, {"--lossless", ""}});
  EXPECT_EQ(placed.session.policy.tiers, TierShares{.t0_share = 0.2});
  EXPECT_EQ(placed.session.policy.name, "full");
}

TEST(TierOptions, AFullCacheDraftsWhereItWasNamed) {
  EXPECT_EQ(Given({{"--lossless", ""}, {"--policy", "full"}}).session.policy.name, "full");
}

}  // namespace
}  // namespace ebb::cli
