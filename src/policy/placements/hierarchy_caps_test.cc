#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/group_for_test.h"
#include "src/policy/tier_plan.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(HierarchyCaps, ACapOnT0IsNeverExceededAndFilledFirst) {
  const TierSetting spec = {
      .engine = {.t0_cap_bytes = 7 * kPageBytes + kPageBytes / 2, .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.25, .evict_share = 0.1}};
  // 7 whole pages less an interval and a page.
  const size_t most = 7 * 64 - 64 - 64;
  size_t num_full = 0;
  const auto check = [&](const Group& group) {
    const size_t full_precision = group.CountIn(Tier::kT0) + group.CountIn(Tier::kT1);
    EXPECT_EQ(group.CountIn(Tier::kT0), std::min(most, full_precision));
    num_full += full_precision > most ? 1 : 0;
    // All that is protected fits: 100 + 4 + 128.
    for (size_t i = 0; i < 104; ++i) EXPECT_EQ(group.tiers[i], Tier::kT0);
  };
  Generate(MakeHierarchy(spec, 4, 128, 64).get(), 2048, check);
  EXPECT_GT(num_full, 20u);
}

TEST(HierarchyCaps, OldProtectedRowsGoToT1WhereT0DoesNotHoldThem) {
  // 64 rows fit of the 100 + 4 + 128 protected ones.
  const TierSetting spec = {
      .engine = {.t0_cap_bytes = 3 * kPageBytes, .t2_type = CompressedType::kInt8},
      .shares = {.t2_share = 0.5}};
  size_t num_decisions = 0;
  Generate(MakeHierarchy(spec, 4, 128, 64).get(), 640, [&](const Group& group) {
    ++num_decisions;
    const size_t num_rows = group.tiers.size();
    for (size_t i = 0; i < num_rows; ++i) {
      const bool is_protected = i < 104 || i + 128 >= num_rows;
      if (i + 64 >= num_rows) {
        EXPECT_EQ(group.tiers[i], Tier::kT0);
      } else if (is_protected) {
        EXPECT_EQ(group.tiers[i], Tier::kT1);
      } else {
        EXPECT_TRUE(group.tiers[i] == Tier::kT1 || group.tiers[i] == Tier::kT2);
      }
    }
  });
  EXPECT_EQ(num_decisions, 10u);
}

TEST(HierarchyCaps, ACapOnT1KeepsRowsInT0) {
  const TierSetting spec = {.engine = {.t1 = T1Place::kHost, .t1_cap_bytes = 4 * kPageBytes + 1},
                            .shares = {.t0_share = 0.1}};
  const Group group = Generate(spec, 1024);
  EXPECT_EQ(group.CountIn(Tier::kT1), 128u);
  EXPECT_EQ(group.CountIn(Tier::kT0), 100u + 1024 - 128);
}

TEST(HierarchyCaps, APromptLargerThanT0SettlesInPrefillAndLeavesT2Alone) {
  const auto placement =
      MakeHierarchy({.engine = {.t0_cap_bytes = 3 * kPageBytes, .t2_type = CompressedType::kInt8},
                     .shares = {.t2_share = 0.5}},
                    0, 2, 64);
  Group group;
  for (int i = 0; i < 4; ++i) group.Append(TokenKind::kGenerated, static_cast<float>(i));
  EXPECT_FALSE(placement->Due(group.Input(StepKind::kPrefill), 64));
  EXPECT_TRUE(placement->Due(group.Input(StepKind::kPrefill), 65));
  EXPECT_EQ(Text(group.Place(placement.get())), "2000");
  for (int i = 0; i < 63; ++i) group.Append(TokenKind::kGiven, 0);
  // T0 takes the 63 protected rows and the best of the other 3 that are not in T2.
  EXPECT_EQ(Text(group.Place(placement.get(), StepKind::kPrefill)), "2110" + std::string(63, '0'));
  for (int i = 0; i < 10; ++i) group.Append(TokenKind::kGiven, 0);
  EXPECT_EQ(Text(group.Place(placement.get(), StepKind::kPrefill)),
            "2111" + std::string(9, '1') + std::string(64, '0'));
  EXPECT_FALSE(MakeHierarchy({.shares = {.t0_share = 0}}, 0, 2, 64)
                   ->Due(group.Input(StepKind::kPrefill), 1'000'000));
}

TEST(HierarchyCaps, APromptsNextStepFindsRoomInT0) {
  // 128 rows after a decision, and an interval and a page more in between.
  const auto placement = MakeHierarchy({.engine = {.t0_cap_bytes = 4 * kPageBytes}}, 0, 2, 64);
  Group group;
  for (int i = 0; i < 128; ++i) group.Append(TokenKind::kGiven, 0);
  group.tokens_to_come = 64;
  EXPECT_FALSE(placement->Due(group.Input(StepKind::kPrefill), 128));
  group.tokens_to_come = 65;
  EXPECT_TRUE(placement->Due(group.Input(StepKind::kPrefill), 128));
  group.tokens_to_come = 100;
  group.Place(placement.get(), StepKind::kPrefill);
  EXPECT_EQ(group.CountIn(Tier::kT0), 128u + 64 - 100);
  group.tokens_to_come = 512;
  group.Place(placement.get(), StepKind::kPrefill);
  EXPECT_EQ(group.CountIn(Tier::kT0), 0u);
  group.tokens_to_come = 0;
  group.Place(placement.get(), StepKind::kPrefill);
  EXPECT_EQ(group.CountIn(Tier::kT0), 128u);
}

TEST(HierarchyCaps, OfADraftWhatT0DoesNotHoldGoesTheFirstAndTheNewestStay) {
  // 128 rows after a decision, and an interval and a page more in between.
  const TierSetting spec = {.engine = {.t0_cap_bytes = 4 * kPageBytes, .t1 = T1Place::kNone},
                            .shares = {.evict_beyond_caps = true}};
  const auto placement = MakeHierarchy(spec, 0, 2, 64, Protected::kMayGo);
  Group group;
  for (int i = 0; i < 100; ++i) group.Append(TokenKind::kGiven, 0);
  for (int i = 0; i < 28; ++i) group.Append(TokenKind::kGenerated, static_cast<float>(i));
  EXPECT_EQ(Text(group.Place(placement.get())), std::string(128, '0'));
  for (int i = 0; i < 20; ++i) group.Append(TokenKind::kGiven, 0);
  EXPECT_TRUE(placement->Check(group.Input(StepKind::kPrefill)).ok());
  // The generated ones with the lowest scores.
  EXPECT_EQ(Text(group.Place(placement.get(), StepKind::kPrefill)),
            std::string(100, '0') + std::string(20, '3') + std::string(28, '0'));
  group.tokens_to_come = 160;  // 128 + 64 - 160 rows may stay
  EXPECT_EQ(Text(group.Place(placement.get(), StepKind::kPrefill)),
            "0000" + std::string(88, '3') + std::string(8, '0') + std::string(8, '3') +
                std::string(20, '0'));
}

TEST(HierarchyCaps, RefusesWhatTheCapsCannotHold) {
  // 64 + 128 rows.
  const TierSetting caps = {.engine = {.t0_cap_bytes = 3 * kPageBytes,
                                       .t1 = T1Place::kHost,
                                       .t1_cap_bytes = 4 * kPageBytes}};
  const auto placement = MakeHierarchy(caps, 4, 100, 64);
  Group group;
  for (int i = 0; i < 88; ++i) group.Append(TokenKind::kGiven, 0);
  for (int i = 0; i < 104; ++i) group.Append(TokenKind::kGenerated, 0);
  EXPECT_TRUE(placement->Check(group.Input()).ok());
  group.Append(TokenKind::kGenerated, 0);
  const Status status = placement->Check(group.Input());
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_EQ(status.message(),
            "T0 of 6 MiB holds 64 rows of each group and 64 in reserve, T1 of 8 MiB "
            "128 likewise; 193 rows must stay in full precision (192 protected, 1 others)");

  TierSetting with_t2 = caps;
  with_t2.shares.t2_share = 1;
  EXPECT_TRUE(MakeHierarchy(with_t2, 4, 100, 64)->Check(group.Input()).ok());
  TierSetting evicting = caps;
  evicting.shares.evict_share = 1;
  EXPECT_TRUE(MakeHierarchy(evicting, 4, 100, 64)->Check(group.Input()).ok());
  // Prefill evicts too, but does not compress.
  EXPECT_TRUE(MakeHierarchy(evicting, 4, 100, 64)->Check(group.Input(StepKind::kPrefill)).ok());
  EXPECT_FALSE(MakeHierarchy(with_t2, 4, 100, 64)->Check(group.Input(StepKind::kPrefill)).ok());
  TierSetting unbounded = caps;
  unbounded.engine.t1_cap_bytes = 0;
  EXPECT_TRUE(MakeHierarchy(unbounded, 4, 100, 64)->Check(group.Input()).ok());
  unbounded = caps;
  unbounded.engine.t0_cap_bytes = 0;
  EXPECT_TRUE(MakeHierarchy(unbounded, 4, 100, 64)->Check(group.Input()).ok());
}

TEST(HierarchyCaps, WhatCapsLeaveOutGoesAloneWhereThatIsAskedFor) {
  TierSetting spec = {.engine = {.t0_cap_bytes = 4 * kPageBytes, .t1 = T1Place::kNone},
                      .shares = {.evict_beyond_caps = true}};
  const auto placement = MakeHierarchy(spec, 4, 8, 64);
  EXPECT_THAT(placement->Name(), HasSubstr("evict=0% of generated or caps"));
  Group group;
  for (int i = 0; i < 128; ++i) group.Append(TokenKind::kGenerated, static_cast<float>(i));
  EXPECT_EQ(Text(group.Place(placement.get())), std::string(128, '0'));
  for (int i = 0; i < 30; ++i) group.Append(TokenKind::kGenerated, static_cast<float>(128 + i));
  EXPECT_EQ(Text(group.Place(placement.get())),
            std::string(4, '0') + std::string(30, '3') + std::string(124, '0'));
  spec.engine.t0_cap_bytes = 0;
  const auto uncapped = MakeHierarchyPlacement({.tiers = spec});
  ASSERT_FALSE(uncapped.ok());
  EXPECT_THAT(uncapped.status().message(), HasSubstr("expected a cap on T0, and one on T1"));
}

TEST(HierarchyCaps, RefusesAPromptWithoutPositionsByWhatIsProtected) {
  const auto placement =
      MakeHierarchy({.engine = {.t0_cap_bytes = 4 * kPageBytes, .t1 = T1Place::kNone},
                     .shares = {.evict_share = 1}},
                    4, 8, 64);
  const std::vector<TokenKind> kinds(129, TokenKind::kGiven);
  EXPECT_TRUE(placement->Check({.kinds = std::span(kinds).first(128)}).ok());
  const Status status = placement->Check({.kinds = kinds});
  EXPECT_EQ(status.code(), StatusCode::kT0Full);
  EXPECT_THAT(status.message(), HasSubstr("there is no T1; 129 rows must stay"));
}

TEST(HierarchyCaps, AGenerationThatCannotShrinkEndsWithAnErrorOnceTheCapsAreFull) {
  const auto placement = MakeHierarchy({.engine = {.t0_cap_bytes = 5 * kPageBytes,
                                                   .t1 = T1Place::kHost,
                                                   .t1_cap_bytes = 6 * kPageBytes}},
                                       4, 128, 64);
  size_t first_refused = 0;
  Generate(placement.get(), 640, [&](const Group& group) {
    EXPECT_EQ(placement->Check(group.Input()).ok(), group.kinds.size() <= 192u + 256);
    if (group.CountIn(Tier::kT0) > 192 && first_refused == 0) first_refused = group.kinds.size();
  });
  EXPECT_EQ(first_refused, 100u + 384);
}

TEST(HierarchyCaps, WhereRowsMayGoTheCapsSayHowMany) {
  for (const double t2_share : {0.0, 0.3}) {
    // 192 + 256 rows.
    const auto placement = MakeHierarchy({.engine = {.t0_cap_bytes = 5 * kPageBytes,
                                                     .t1 = T1Place::kHost,
                                                     .t1_cap_bytes = 6 * kPageBytes,
                                                     .t2_type = CompressedType::kInt8},
                                          .shares = {.t2_share = t2_share, .evict_share = 0.01}},
                                         4, 128, 64);
    size_t most = 0;
    Generate(placement.get(), 5000, [&](const Group& group) {
      EXPECT_TRUE(placement->Check(group.Input()).ok());
      const size_t full = group.CountIn(Tier::kT0) + group.CountIn(Tier::kT1);
      EXPECT_LE(full, 192u + 256);
      most = std::max(most, full);
      const size_t unprotected = std::max<size_t>(group.tiers.size(), 232) - 232;
      EXPECT_EQ(group.CountIn(Tier::kT2), FloorShare(t2_share, unprotected));
      // Nothing goes before it must.
      if (group.kinds.size() < 448) {
        EXPECT_GE(group.tiers.size(), group.kinds.size() * 99 / 100);
      }
    });
    EXPECT_EQ(most, 192u + 256) << "the caps are used";
  }
}

TEST(HierarchyCaps, AShareThatLeavesNearlyNothingIsCountedAtOnce) {
  for (const double t2_share : {0.0, 0.3, 0.999, 1 - 1e-12, 1.0}) {
    for (const size_t room : {0, 1, 100, 5000}) {
      const size_t most = MostAlive(t2_share, room);
      if (most >= size_t{1} << 40) continue;  // as good as any
      EXPECT_LT(t2_share, 1);
      EXPECT_LE(most - FloorShare(t2_share, most), room) << t2_share;
      EXPECT_GT(most + 1 - FloorShare(t2_share, most + 1), room) << t2_share;
    }
  }
}

}  // namespace
}  // namespace ebb
