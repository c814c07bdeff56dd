#include "src/policy/pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "ebb/policy.h"

namespace ebb {
namespace {

using testing::HasSubstr;

TEST(Pairs, AreListedOnceAndSayWhy) {
  std::set<std::pair<Choice, Choice>> seen;
  for (const Pair& pair : RefusedPairs()) {
    EXPECT_NE(pair.a, pair.b);
    EXPECT_FALSE(pair.why.empty());
    EXPECT_TRUE(seen.insert(std::minmax(pair.a, pair.b)).second) << pair.why;
    EXPECT_EQ(FindPair(pair.b, pair.a), &pair);
  }
  EXPECT_EQ(FindPair(Choice::kMarks, Choice::kOldRows), nullptr);
}

TEST(Pairs, AnErrorNamesBothChoicesAndTheFieldOfOne) {
  const MadeChoice made[] = {{Choice::kBudget, "a budget of 64 rows"},
                             {Choice::kOldRows, "old rows", "tiers.t2_rows"},
                             {Choice::kEvictShare, "evicting 10%", "tiers.evict_share"}};
  const Status status = CheckPairs(made);
  EXPECT_EQ(status.field(), "tiers.evict_share");
  EXPECT_EQ(status.message(),
            "evicting 10% cannot be combined with a budget of 64 rows: both say how many rows are "
            "evicted");
  EXPECT_TRUE(CheckPairs(std::span(made).first(2)).ok());
}

TEST(Pairs, TheUsersPageShowsTheTable) {
  std::ifstream file(std::string(EBB_SOURCE_DIR) + "/docs/user/policies.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(page, HasSubstr(PairsAsMarkdown()));
}

// Returns the options of a choice of the table's rows or columns.
void Choose(Choice choice, PolicySpec* spec, EngineTiers* tiers) {
  const auto shares = [&]() -> TierShares& {
    return spec->tiers.has_value() ? *spec->tiers : spec->tiers.emplace();
  };
  const auto use = [&](const char* name, const char* budget) {
    spec->name = name;
    if (*budget != '\0') spec->budget = *ParseBudget(budget);
  };
  switch (choice) {
    case Choice::kKeepsAll:
      return use("full", "");
    case Choice::kBudget:
      return use("lag_kv", "+512");
    case Choice::kSegments:
      return use("segment_hs", "+512");
    case Choice::kWindow:
      return use("streaming", "512");
    case Choice::kMarks:
      return use("dms", "");
    case Choice::kTurnedKeys:
      return use("streaming_rerotated", "512");
    case Choice::kReadsMass:
      return use("h2o", "512");
    case Choice::kOtherScorer:
      spec->scorer = "h2o";
      return;
    case Choice::kEvictShare:
      shares().evict_share = 0.1;
      return;
    case Choice::kEvictCaps:
      shares().evict_beyond_caps = true;
      tiers->t0_cap_bytes = uint64_t{1} << 40;
      return;
    case Choice::kOldRows:
      shares().t2_rows = T2Rows::kOld;
      tiers->t2_type = CompressedType::kInt8;
      return;
    case Choice::kT2Share:
      shares().t2_share = 0.25;
      tiers->t2_type = CompressedType::kInt8;
      return;
    case Choice::kT1:
      shares();
      tiers->t1 = T1Place::kHost;
      return;
    case Choice::kT0Cap:
      shares();
      tiers->t0_cap_bytes = uint64_t{1} << 40;
      return;
    case Choice::kSelect:
      shares().t1_read = T1Read::kSelect;
      tiers->t1 = T1Place::kHost;
      return;
    case Choice::kQuest:
      spec->read = "quest";
      return;
    case Choice::kDraftShare:
    case Choice::kLosslessSelect:
      return;
  }
}

constexpr Choice kPairPolicies[] = {Choice::kKeepsAll, Choice::kBudget, Choice::kSegments,
                                    Choice::kWindow,   Choice::kMarks,  Choice::kTurnedKeys,
                                    Choice::kReadsMass};
constexpr Choice kPairOthers[] = {Choice::kOldRows,    Choice::kT2Share,   Choice::kT1,
                                  Choice::kT0Cap,      Choice::kSelect,    Choice::kQuest,
                                  Choice::kEvictShare, Choice::kEvictCaps, Choice::kOtherScorer};

Status TryToMake(Choice a, Choice b) {
  PolicySpec spec;
  EngineTiers tiers = {.t1 = T1Place::kNone};
  Choose(a, &spec, &tiers);
  Choose(b, &spec, &tiers);
  const RowsAvailable rows = {.t0 =
                                  tiers.t0_cap_bytes > 0 ? size_t{1} << 20 : RowsAvailable::kNoCap};
  return MakePolicy(spec, {.shape = {.num_layers = 30,
                                     .num_q_heads = 9,
                                     .num_kv_heads = 3,
                                     .head_dim = 64,
                                     .embed_dim = 576,
                                     .vocab_size = 64,
                                     .trained_context = 8192},
                           .row_bytes = 256,
                           .max_tokens = 8192,
                           .tiers = tiers,
                           .rows_available = rows,
                           .eviction_window = 256})
      .status();
}

// The table is the whole truth: what it names is refused with its sentence, all else is made.
TEST(Pairs, MakePolicyRefusesThePairsOfTheTableAndNoOthers) {
  const auto expect = [](Choice a, Choice b) {
    const Pair* pair = FindPair(a, b);
    // A policy of this test that reads mass is one with a budget, too.
    if (pair == nullptr && a == Choice::kReadsMass) pair = FindPair(Choice::kBudget, b);
    if (pair == nullptr && a == Choice::kTurnedKeys) pair = FindPair(Choice::kWindow, b);
    const Status status = TryToMake(a, b);
    SCOPED_TRACE(testing::Message()
                 << static_cast<int>(a) << " " << static_cast<int>(b) << " " << status.ToString());
    if (pair == nullptr) {
      EXPECT_TRUE(status.ok());
      return;
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("cannot be combined with"));
  };
  for (const Choice policy : kPairPolicies) {
    for (const Choice other : kPairOthers) {
      // Keys that turn are refused with a T1 when a session is opened; full ranks nothing by
      // another scorer.
      const bool is_scorer = other == Choice::kOtherScorer;
      if (is_scorer && policy != Choice::kMarks) continue;
      if (policy == Choice::kTurnedKeys && other == Choice::kT0Cap) continue;
      expect(policy, other);
    }
  }
  for (const Choice a : kPairOthers) {
    for (const Choice b : kPairOthers) {
      const bool is_twice = (a == Choice::kOldRows && b == Choice::kT2Share) ||
                            (a == Choice::kT2Share && b == Choice::kOldRows);
      if (a == b || is_twice || a == Choice::kOtherScorer || b == Choice::kOtherScorer) continue;
      // Caps of this test are on T0.
      const bool has_cap = a == Choice::kEvictCaps || b == Choice::kEvictCaps;
      const bool refuses_cap =
          FindPair(a, Choice::kT0Cap) != nullptr || FindPair(b, Choice::kT0Cap) != nullptr;
      if (has_cap && (refuses_cap || a == Choice::kT1 || b == Choice::kT1)) continue;
      expect(a, b);
    }
  }
}

}  // namespace
}  // namespace ebb
