#include <gtest/gtest.h>

#include "ebb/engine.h"

namespace ebb {
namespace {

TEST(TiersOf, AFullCacheHasNone) {
  EXPECT_FALSE(TiersOf({.tiers = EngineTiers()}, {}).has_value());
}

TEST(TiersOf, T1LiesInAFileOrBesideADeviceInTheHostsMemory) {
  const SessionOptions session = {.policy = {.tiers = TierShares{.t0_share = 0.2}}};
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kBackend}) {
    const T1Place place = kind == DeviceKind::kCpu ? T1Place::kFile : T1Place::kHost;
    EXPECT_EQ(DefaultT1({.kind = kind}), place);
    EngineOptions engine = {.tiers = EngineTiers(), .device = {.kind = kind}};
    EXPECT_EQ(TiersOf(engine, session)->engine.t1, place);
    EXPECT_EQ(TiersOf(engine, session)->shares.t0_share, 0.2);
    engine.tiers->t1 = T1Place::kNone;
    EXPECT_EQ(TiersOf(engine, session)->engine.t1, T1Place::kNone);
  }
}

TEST(TiersOf, AShareOrTheCapSaysHowMuchT0Holds) {
  EngineOptions engine = {.tiers = EngineTiers()};
  SessionOptions session = {.policy = {.tiers = TierShares()}};
  EXPECT_EQ(TiersOf(engine, session)->shares.t0_share, kDefaultT0Share);
  engine.tiers->t0_cap_bytes = 4096;
  engine.tiers->t1_cap_bytes = 8192;
  EXPECT_EQ(TiersOf(engine, session)->engine.t0_cap_bytes, 4096u);
  EXPECT_EQ(TiersOf(engine, session)->engine.t1_cap_bytes, 8192u);
  EXPECT_FALSE(TiersOf(engine, session)->shares.t0_share.has_value());
  session.policy.tiers->t0_share = 0.3;
  EXPECT_EQ(TiersOf(engine, session)->engine.t0_cap_bytes, 0u);
  EXPECT_EQ(TiersOf(engine, session)->shares.t0_share, 0.3);
}

TEST(TiersOf, CapsThatSessionsShareAreNoneOfOneSession) {
  const EngineOptions engine = {
      .tiers =
          EngineTiers{.t0_cap_bytes = 4096, .t1_cap_bytes = 8192, .sessions_share_caps = true}};
  SessionOptions session = {.policy = {.tiers = TierShares()}};
  EXPECT_EQ(TiersOf(engine, session)->engine.t0_cap_bytes, 0u);
  EXPECT_EQ(TiersOf(engine, session)->engine.t1_cap_bytes, 0u);
  EXPECT_EQ(TiersOf(engine, session)->shares.t0_share, 1);
  session.policy.tiers->t0_share = 0.3;
  EXPECT_EQ(TiersOf(engine, session)->shares.t0_share, 0.3);
}

}  // namespace
}  // namespace ebb
