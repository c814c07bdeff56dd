#include "ebb/engine.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

struct Options {
  EngineOptions engine;
  SessionOptions session;
};

Options Lossless(const std::optional<TierSpec>& tiers = std::nullopt) {
  Options options;
  options.session.policy.tiers = tiers;
  options.session.lossless.emplace();
  return options;
}

Options Completed(Options options, const ExplicitOptions& given) {
  ApplyDefaults(given, &options.engine, &options.session);
  return options;
}

TEST(DefaultDraft, IsAWindowBehindSinksUnlessSomethingElseDrafts) {
  const PolicySpec draft = DefaultDraft({});
  EXPECT_EQ(draft.name, "streaming");
  EXPECT_EQ(draft.sinks, 20);
  EXPECT_EQ(draft.window, 512);
  const PolicySpec narrow = DefaultDraft({.sinks = 2, .window = 9});
  EXPECT_EQ(narrow.name, "streaming");
  EXPECT_EQ(narrow.sinks, 2);
  EXPECT_EQ(narrow.window, 9);
  EXPECT_EQ(DefaultDraft({.name = "h2o"}).name, "h2o");
  EXPECT_EQ(DefaultDraft({.budget = {Budget::Unit::kRows, 64}}).name, "full");
  PolicySpec tiered;
  tiered.tiers.emplace();
  EXPECT_EQ(DefaultDraft(tiered).name, "full");
}

TEST(ApplyDefaults, LeavesAFullCacheAlone) {
  const Options options = Completed({}, {});
  EXPECT_FALSE(options.engine.tiers.has_value());
  EXPECT_FALSE(options.session.policy.tiers.has_value());
  EXPECT_EQ(options.session.policy.name, "full");
}

TEST(ApplyDefaults, T1LiesInAFileOrBesideADeviceInTheHostsMemory) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kBackend}) {
    const T1Place place = kind == DeviceKind::kCpu ? T1Place::kFile : T1Place::kHost;
    EXPECT_EQ(DefaultT1({.kind = kind}), place);
    Options options;
    options.engine.device.kind = kind;
    options.session.policy.tiers = TierSpec{.t0_share = 0.2};
    const Options chosen = Completed(options, {.tiers = true});
    ASSERT_TRUE(chosen.engine.tiers.has_value());
    EXPECT_EQ(chosen.engine.tiers->t1, place);
    EXPECT_EQ(chosen.engine.tiers->t0_share, 0.2);
    EXPECT_EQ(chosen.session.policy.tiers->t1, place);
    options.session.policy.tiers->t1 = T1Place::kNone;
    const Options given = Completed(options, {.t1 = true, .tiers = true});
    EXPECT_EQ(given.engine.tiers->t1, T1Place::kNone);
    EXPECT_EQ(given.session.policy.tiers->t1, T1Place::kNone);
  }
}

TEST(ApplyDefaults, ALosslessSessionHasAT1AndADraft) {
  const Options bare = Completed(Lossless(), {});
  ASSERT_TRUE(bare.engine.tiers.has_value());
  EXPECT_EQ(bare.engine.tiers->t1, T1Place::kFile);
  EXPECT_FALSE(bare.session.policy.tiers.has_value());
  EXPECT_EQ(bare.session.policy.name, "streaming");
  // Tiers that only say where T1 lies belong to the engine; the draft keeps its default policy.
  const Options host = Completed(Lossless(TierSpec{.t1 = T1Place::kHost}), {.t1 = true});
  EXPECT_EQ(host.engine.tiers->t1, T1Place::kHost);
  EXPECT_FALSE(host.session.policy.tiers.has_value());
  EXPECT_EQ(host.session.policy.name, "streaming");
  // Others are.
  const Options placed = Completed(Lossless(TierSpec{.t0_share = 0.2}), {.tiers = true});
  ASSERT_TRUE(placed.session.policy.tiers.has_value());
  EXPECT_EQ(placed.session.policy.tiers->t0_share, 0.2);
  EXPECT_EQ(placed.session.policy.name, "full");
}

TEST(ApplyDefaults, AFullCacheDraftsWhereItWasNamed) {
  EXPECT_EQ(Completed(Lossless(), {.policy = true}).session.policy.name, "full");
}

}  // namespace
}  // namespace ebb
