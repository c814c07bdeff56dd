#include <algorithm>
#include <cstdio>
#include <random>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/group_for_test.h"

namespace ebb {
namespace {

struct Shares {
  double t0 = 0.5;
  T1Place t1 = T1Place::kFile;
  double t2 = 0;
  double evict = 0;
  EvictOf of = EvictOf::kGenerated;
};

TierSetting Spec(const Shares& shares) {
  return {.engine = {.t1 = shares.t1, .t2_type = CompressedType::kInt8},
          .shares = {.t0_share = shares.t0,
                     .t2_share = shares.t2,
                     .evict_share = shares.evict,
                     .evict_of = shares.of}};
}

struct SharesCase {
  const char* name;
  Shares shares;
  const char* tokens;               // p: given, x: generated; 1 sink, a window of 2
  std::vector<Position> positions;  // alive; empty: all
  std::vector<float> scores;        // of the rows alive
  const char* tiers;                // of the rows alive, now; empty: all in T0
  const char* expected;             // of the same rows
};

const std::vector<float> kEight = {0, 0, 5, 3, 8, 1, 7, 2, 6, 4, 0, 0};

// U is positions 2 to 9; ascending by score: 5 7 3 9 2 8 6 4.
const SharesCase kCases[] = {
    {"Algorithm 1: 2 of 8 go, 3 of 6 stay in T0",
     {.t0 = 0.5, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "001103030100"},
    {"2 of 8 go, 1 of 6 to T2, 2 of 5 stay in T0",
     {.t0 = 0.5, .t2 = 0.25, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "001203031100"},
    {"beta 0 leaves what goes to T2 and T3 as it is",
     {.t0 = 0, .t2 = 0.25, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "001213131100"},
    {"beta 1 does so too",
     {.t0 = 1, .t2 = 0.25, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "000203030000"},
    {"without T1, beta is 1",
     {.t0 = 0, .t1 = T1Place::kNone, .t2 = 0.25, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "000203030000"},
    {"rows rise from T1 and T2, and those that lie where they belong do not move",
     {.t0 = 0.5, .t2 = 0.25, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "002220122200",
     "001203031100"},
    {"100 % evicted spares what is protected",
     {.evict = 1},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "003333333300"},
    {"100 % in T2 spares what is protected",
     {.t2 = 1},
     "pxxxxxxxxxxx",
     {},
     kEight,
     "",
     "002222222200"},
    {"of equal scores the lower positions rank higher",
     {.t0 = 0.5, .t2 = 0.5, .evict = 0.25},
     "pxxxxxxxxxxx",
     {},
     {0, 0, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0},
     "",
     "000112223300"},
    // Position 5 and 7 went before: 2 of 8 are gone, so that 25 % of generated asks for no more.
    {"of generated: what is gone counts",
     {.t0 = 0.5, .evict = 0.25},
     "pxxxxxxxxxxx",
     {0, 1, 2, 3, 4, 6, 8, 9, 10, 11},
     {0, 0, 5, 3, 8, 7, 6, 4, 0, 0},
     "",
     "0011000100"},
    {"of generated: one more goes of 8 when 1 is gone",
     {.t0 = 0.5, .evict = 0.25},
     "pxxxxxxxxxxx",
     {0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11},
     {0, 0, 5, 3, 8, 7, 2, 6, 4, 0, 0},
     "",
     "00110030100"},
    {"of alive: a quarter of the 6 that are left goes",
     {.t0 = 0.5, .evict = 0.25, .of = EvictOf::kAlive},
     "pxxxxxxxxxxx",
     {0, 1, 2, 3, 4, 6, 8, 9, 10, 11},
     {0, 0, 5, 3, 8, 7, 6, 4, 0, 0},
     "",
     "0013001100"},
    {"of generated: more gone than asked for brings nothing back and evicts nothing",
     {.t0 = 0, .evict = 0.25},
     "pxxxxxxxxxxx",
     {0, 1, 2, 3, 10, 11},
     {0, 0, 5, 3, 0, 0},
     "",
     "001100"},
    {"a later turn is protected, whatever its score",
     {.t0 = 0, .evict = 0.5},
     "pxxxppxxxx",
     {},
     {0, 0, 5, 3, -1, -1, 4, 6, 0, 0},
     "",
     "0013003100"},
    {"what a roll-back made protected rises",
     {.t0 = 0, .t2 = 1},
     "pxxxxx",
     {},
     {0, 0, 0, 0, 0, 0},
     "002222",
     "002200"},
    {"nothing is unprotected", {.evict = 1}, "pppxxx", {}, {0, 0, 0, 0, 0, 0}, "", "000000"},
    {"no rows at all", {.evict = 1}, "", {}, {}, "", ""},
};

TEST(HierarchyPlacement, FollowsTheTable) {
  for (const SharesCase& c : kCases) {
    SCOPED_TRACE(c.name);
    Group group;
    for (const char kind : std::string_view(c.tokens)) {
      group.Append(kind == 'p' ? TokenKind::kGiven : TokenKind::kGenerated, 0);
    }
    if (!c.positions.empty()) group.positions = c.positions;
    group.scores = c.scores;
    ASSERT_EQ(group.scores.size(), group.positions.size());
    group.tiers.assign(group.positions.size(), Tier::kT0);
    const std::string_view tiers = c.tiers;
    for (size_t i = 0; i < tiers.size(); ++i) group.tiers[i] = static_cast<Tier>(tiers[i] - '0');
    EXPECT_EQ(Text(group.Place(MakeHierarchy(Spec(c.shares), 1, 2, 1).get())), c.expected);
  }
}

TEST(HierarchyPlacement, TakesNoTiersForAllInT0) {
  Group group;
  for (int i = 0; i < 20; ++i) group.Append(TokenKind::kGenerated, static_cast<float>(i));
  PlacementInput input = group.Input();
  input.tiers = {};
  std::vector<Move> moves;
  MakeHierarchy({.shares = {.t0_share = 0.5}}, 0, 16, 1)->Place(input, &moves);
  EXPECT_THAT(moves, ::testing::ElementsAre(Move{0, Tier::kT1}, Move{1, Tier::kT1}));
}

struct Percents {
  size_t t0, t2, evict;
  EvictOf evict_of;
};

// The docstring's rule, asked for each token, in whole numbers, with everything sorted. By row.
std::vector<Tier> Naive(const Percents& p, int sinks, int window, const Group& group) {
  std::vector<bool> is_protected;
  int num_generated = 0;
  for (size_t i = 0; i < group.kinds.size(); ++i) {
    const bool given = group.kinds[i] == TokenKind::kGiven;
    num_generated += given ? 0 : 1;
    is_protected.push_back(given || num_generated <= sinks || i + window >= group.kinds.size());
  }
  const size_t num_ever = std::count(is_protected.begin(), is_protected.end(), false);
  std::vector<std::pair<float, int>> order;  // (score, -row)
  for (size_t i = 0; i < group.positions.size(); ++i) {
    if (!is_protected[group.positions[i]])
      order.emplace_back(group.scores[i], -static_cast<int>(i));
  }
  std::sort(order.begin(), order.end());

  size_t num_evict = order.size() * p.evict / 100;
  if (p.evict_of == EvictOf::kGenerated) {
    const size_t wanted = num_ever * p.evict / 100;
    const size_t gone = num_ever - order.size();
    num_evict = wanted > gone ? wanted - gone : 0;
  }
  const size_t num_t2 = (order.size() - num_evict) * p.t2 / 100;
  const size_t num_full = order.size() - num_evict - num_t2;
  const size_t num_t0 = num_full * p.t0 / 100;
  std::vector<Tier> targets(group.positions.size(), Tier::kT0);
  for (size_t i = 0; i < order.size(); ++i) {
    targets[-order[i].second] = i < num_evict               ? Tier::kT3
                                : i < num_evict + num_t2    ? Tier::kT2
                                : i < order.size() - num_t0 ? Tier::kT1
                                                            : Tier::kT0;
  }
  return targets;
}

TEST(HierarchyPlacement, AgreesWithTheNaiveRuleOverWholeConversations) {
  std::mt19937 random(5);
  size_t count[kNumTiers] = {};
  for (int trial = 0; trial < 300; ++trial) {
    const int sinks = random() % 4;
    const int window = random() % 10;
    const Percents p = {random() % 101, random() % 101, random() % (trial % 3 == 0 ? 101 : 20),
                        trial % 2 == 0 ? EvictOf::kGenerated : EvictOf::kAlive};
    const auto placement = MakeHierarchy({.engine = {.t2_type = CompressedType::kInt8},
                                          .shares = {.t0_share = p.t0 / 100.0,
                                                     .t2_share = p.t2 / 100.0,
                                                     .evict_share = p.evict / 100.0,
                                                     .evict_of = p.evict_of}},
                                         sinks, window, 1);
    Group group;
    for (int step = 0; step < 80; ++step) {
      const bool turn = step == 0 || random() % 20 == 0;
      for (int i = turn ? random() % 6 : 1 + random() % 8; i > 0; --i) {
        group.Append(turn ? TokenKind::kGiven : TokenKind::kGenerated, 0);
      }
      if (random() % 15 == 0) group.TruncateTo(random() % (group.kinds.size() + 1));
      // Scores that change from one decision to the next, with ties.
      for (float& score : group.scores) score += static_cast<float>(random() % 4);
      const std::vector<Tier> expected = Naive(p, sinks, window, group);
      const std::vector<Tier> placed = group.Place(placement.get());
      ASSERT_EQ(Text(placed), Text(expected)) << "trial " << trial << " step " << step;
      for (const Tier tier : placed) ++count[static_cast<int>(tier)];
    }
  }
  for (const size_t rows : count) EXPECT_GT(rows, 5000u);
}

TEST(HierarchyPlacement, WhatIsInT2AndT3DependsNeitherOnBetaNorOnT1NorOnCapsThatHoldIt) {
  for (const EvictOf evict_of : {EvictOf::kGenerated, EvictOf::kAlive}) {
    const TierSetting base = {
        .engine = {.t2_type = CompressedType::kInt8},
        .shares = {.t0_share = 0.5, .t2_share = 0.3, .evict_share = 0.1, .evict_of = evict_of}};
    std::vector<TierSetting> others(6, base);
    others[0].shares.t0_share = 0;
    others[1].shares.t0_share = 0.3;
    others[2].shares.t0_share = 1;
    others[3].engine.t1 = T1Place::kNone;
    others[4].engine.t0_cap_bytes = 4 * kPageBytes;
    others[5].engine.t0_cap_bytes = 3 * kPageBytes;
    others[5].engine.t1 = T1Place::kHost;
    others[5].engine.t1_cap_bytes = 24 * kPageBytes;
    const auto history = [](const TierSetting& spec) {
      std::vector<std::pair<std::vector<Position>, std::string>> decisions;
      Generate(MakeHierarchy(spec, 4, 128, 64).get(), 1500, [&](const Group& group) {
        std::string compressed;
        for (const Tier tier : group.tiers) compressed.push_back(tier == Tier::kT2 ? '2' : '-');
        decisions.emplace_back(group.positions, compressed);
      });
      return decisions;
    };
    const auto expected = history(base);
    EXPECT_EQ(expected.size(), 1500u / 64);
    for (const TierSetting& other : others) EXPECT_EQ(history(other), expected);
  }
}

TEST(HierarchyPlacement, OfAliveCompounds) {
  const struct {
    double r;
    size_t alive;  // of 2,048 generated tokens
  } cases[] = {{0.03, 1379}, {0.05, 1094}, {0.1, 688}, {0.5, 196}};
  for (const auto& c : cases) {
    const TierSetting spec = {.engine = {.t1 = T1Place::kNone},
                              .shares = {.evict_share = c.r, .evict_of = EvictOf::kAlive}};
    EXPECT_EQ(Generate(spec, 2048).positions.size(), 100 + c.alive) << c.r;
  }
}

TEST(HierarchyPlacement, OfGeneratedDoesNotCompound) {
  for (const size_t percent : {3, 5, 10, 50, 100}) {
    const TierSetting spec = {.shares = {.evict_share = percent / 100.0}};
    // 2,048 - 4 - 128 = 1,916 were ever unprotected.
    EXPECT_EQ(Generate(spec, 2048).positions.size(), 2148 - 1916 * percent / 100) << percent;
  }
}

// Returns the tier that an explanation says the row goes to.
char TierIn(const std::string& text) {
  unsigned rank = 0, begin = 0, end = 0;
  float score = 0;
  if (std::sscanf(text.c_str(), "score %f, rank %u of ", &score, &rank) != 2) {
    return text.starts_with("protected: ") ? '0' : '?';
  }
  const std::pair<const char*, char> kEnds[] = {
      {"are evicted", '3'}, {"go to T2", '2'}, {"go to T1", '1'}, {"stay in T0", '0'}};
  for (const auto& [words, tier] : kEnds) {
    const size_t found = text.find(words);
    if (found == std::string::npos) continue;
    const size_t number = text.find_last_of(":,", found);
    if (std::sscanf(text.c_str() + number + 1, " %u to %u", &begin, &end) != 2) return '?';
    if (rank >= begin && rank <= end) return tier;
  }
  return '?';
}

TEST(HierarchyPlacement, ExplainsWhereEachRowGoes) {
  std::mt19937 random(7);
  size_t count[kNumTiers] = {};
  for (int trial = 0; trial < 40; ++trial) {
    const auto placement = MakeHierarchy({.engine = {.t2_type = CompressedType::kInt8},
                                          .shares = {.t0_share = random() % 101 / 100.0,
                                                     .t2_share = random() % 101 / 100.0,
                                                     .evict_share = random() % 20 / 100.0}},
                                         random() % 4, random() % 10, 1);
    Group group;
    for (int step = 0; step < 40; ++step) {
      for (int i = 1 + random() % 8; i > 0; --i) {
        group.Append(step == 0 ? TokenKind::kGiven : TokenKind::kGenerated, 0);
      }
      for (float& score : group.scores) score += static_cast<float>(random() % 4);
      std::string explained;
      for (size_t row = 0; row < group.positions.size(); ++row) {
        explained += TierIn(placement->Explain(group.Input(), row));
      }
      const std::vector<Tier> placed = group.Place(placement.get());
      ASSERT_EQ(Text(placed), explained) << "trial " << trial << " step " << step;
      for (const Tier tier : placed) ++count[static_cast<int>(tier)];
    }
  }
  for (const size_t rows : count) EXPECT_GT(rows, 100u);
}

TEST(HierarchyPlacement, ExplanationsNameTheRuleTheScoreAndTheRank) {
  const auto placement =
      MakeHierarchy({.engine = {.t2_type = CompressedType::kInt8},
                     .shares = {.t0_share = 0.5, .t2_share = 0.25, .evict_share = 0.25}},
                    1, 2, 1);
  Group group;
  group.Append(TokenKind::kGiven, 0);
  for (const float score : {0.F, 5.F, 3.F, 8.F, 1.F, 7.F, 2.F, 6.F, 4.F, 0.F, 0.F}) {
    group.Append(TokenKind::kGenerated, score);
  }
  const PlacementInput input = group.Input();
  EXPECT_EQ(placement->Explain(input, 0), "protected: a token of a prompt");
  EXPECT_EQ(placement->Explain(input, 1), "protected: one of the first 1 generated tokens");
  EXPECT_EQ(placement->Explain(input, 11), "protected: one of the newest 2 tokens");
  EXPECT_EQ(placement->Explain(input, 3),
            "score 3, rank 3 of 8 from the lowest: 1 to 2 are evicted, 3 to 3 go to T2, 4 to 6 go "
            "to T1, 7 to 8 stay in T0");
}

TEST(HierarchyPlacement, IsDueOnEveryIntervalOfDecodeSteps) {
  const auto placement = MakeHierarchy({}, 4, 128, 64);
  EXPECT_TRUE(placement->Due({.generated_tokens = 64}, 1));
  EXPECT_TRUE(placement->Due({.generated_tokens = 128}, 1));
  EXPECT_FALSE(placement->Due({.generated_tokens = 65}, 1000));
  // A step of several tokens that goes past one.
  EXPECT_TRUE(placement->Due({.generated_tokens = 66, .new_tokens = 3}, 1000));
  EXPECT_FALSE(placement->Due({.generated_tokens = 66, .new_tokens = 2}, 1000));
  EXPECT_FALSE(placement->Due({.generated_tokens = 64, .step_kind = StepKind::kPrefill}, 1000));
  EXPECT_TRUE(placement->NeedsScores());
}

}  // namespace
}  // namespace ebb
