#include "ebb/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ebb {
namespace {

using testing::ElementsAre;
using Kind = LedgerEvent::Kind;

std::vector<Ledger::Change> Changes(std::initializer_list<Position> positions, Tier to) {
  std::vector<Ledger::Change> changes;
  for (const Position position : positions) changes.push_back({position, to});
  return changes;
}

std::vector<LedgerEvent> Events(const Ledger& ledger) {
  std::vector<LedgerEvent> events;
  ledger.ForEach([&](const LedgerEvent& event) { events.push_back(event); });
  return events;
}

TEST(LedgerTest, BeginsEmpty) {
  const Ledger ledger(std::vector<int>(2, 3));
  EXPECT_EQ(ledger.next_position(), 0);
  EXPECT_EQ(ledger.num_steps(), 0);
  EXPECT_TRUE(ledger.tiers(1).empty());
  EXPECT_TRUE(ledger.RowsByStep().empty());
  EXPECT_TRUE(Events(ledger).empty());
}

TEST(LedgerTest, TellsWhatHappenedToATokenAndWhen) {
  Ledger ledger(std::vector<int>(2, 3));
  ledger.Append(4);
  ledger.Append(1);
  ledger.Move(1, Changes({0, 2}, Tier::kT1));
  ledger.Append(1);
  ledger.Move(1, Changes({2}, Tier::kT2));
  ledger.Move(0, Changes({2}, Tier::kT3));
  EXPECT_THAT(ledger.History(1, 2), ElementsAre(LedgerEvent{Kind::kAppended, 0, -1, 2, Tier::kT0},
                                                LedgerEvent{Kind::kMoved, 1, 1, 2, Tier::kT1},
                                                LedgerEvent{Kind::kMoved, 2, 1, 2, Tier::kT2}));
  EXPECT_THAT(ledger.tiers(1),
              ElementsAre(Tier::kT1, Tier::kT0, Tier::kT2, Tier::kT0, Tier::kT0, Tier::kT0));
  EXPECT_THAT(ledger.History(0, 5), ElementsAre(LedgerEvent{Kind::kAppended, 2, -1, 5, Tier::kT0}));
  EXPECT_TRUE(ledger.History(0, 6).empty());
  EXPECT_THAT(ledger.RowsByStep(), ElementsAre(ElementsAre(24, 0, 0, 0), ElementsAre(24, 6, 0, 0),
                                               ElementsAre(27, 3, 3, 3)));
  EXPECT_EQ(ledger.rows(Tier::kT3), 3);
}

TEST(LedgerTest, AMoveToWhereATokenIsLeavesNoTrace) {
  Ledger ledger(std::vector<int>(1, 1));
  ledger.Append(3);
  const uint64_t changes = ledger.num_changes();
  ledger.Move(0, Changes({0, 2}, Tier::kT0));
  EXPECT_EQ(ledger.num_changes(), changes);
  EXPECT_EQ(Events(ledger).size(), 3u);
}

TEST(LedgerTest, ARollBackForgetsTokensAndTheirHistory) {
  Ledger ledger(std::vector<int>(1, 2));
  ledger.Append(5);
  ledger.Move(0, Changes({1, 3}, Tier::kT2));
  ledger.TruncateTo(5);  // nothing to forget
  ledger.TruncateTo(2);
  EXPECT_EQ(ledger.next_position(), 2);
  EXPECT_EQ(ledger.rows(Tier::kT2), 2);
  EXPECT_EQ(ledger.rows(Tier::kT0), 2);
  EXPECT_TRUE(ledger.History(0, 3).empty());
  EXPECT_EQ(ledger.History(0, 1).size(), 2u);
  ledger.Append(2);
  EXPECT_THAT(ledger.History(0, 3), ElementsAre(LedgerEvent{Kind::kAppended, 1, -1, 3, Tier::kT0}));
  EXPECT_THAT(ledger.RowsByStep(), ElementsAre(ElementsAre(2, 0, 2, 0), ElementsAre(6, 0, 2, 0)));
}

TEST(LedgerTest, TheCommonTierIsThatOfMostGroupsAndTheFasterOfTwo) {
  Ledger ledger(std::vector<int>(4, 1));
  ledger.Append(2);
  for (const int group : {0, 1}) ledger.Move(group, Changes({0}, Tier::kT1));
  EXPECT_EQ(ledger.CommonTier(0), Tier::kT0);
  ledger.Move(2, Changes({0}, Tier::kT1));
  EXPECT_EQ(ledger.CommonTier(0), Tier::kT1);
  EXPECT_EQ(ledger.CommonTier(1), Tier::kT0);
}

TEST(LedgerTest, MovesThatFailedHalfWayAreReadOffTheRows) {
  Ledger ledger(std::vector<int>(1, 1));
  ledger.Append(5);
  const std::vector<Position> left = {0, 2, 4};
  const std::vector<Tier> tiers = {Tier::kT1, Tier::kT0, Tier::kT2};
  ledger.Reconcile(0, left, tiers);
  EXPECT_THAT(ledger.tiers(0), ElementsAre(Tier::kT1, Tier::kT3, Tier::kT0, Tier::kT3, Tier::kT2));
}

// Far apart positions, many groups and long prompts need numbers of several bytes.
TEST(LedgerTest, WhatIsReadBackIsWhatWasWritten) {
  std::mt19937 random(5);
  Ledger ledger(std::vector<int>(300, 1));
  std::vector<LedgerEvent> expected;
  int64_t step = -1;
  for (int i = 0; i < 200; ++i) {
    const int num_tokens = i % 50 == 0 ? 2000 : 1;
    for (int t = 0; t < num_tokens; ++t) {
      expected.push_back({Kind::kAppended, step + 1, -1, ledger.next_position() + t, Tier::kT0});
    }
    ++step;
    ledger.Append(num_tokens);
    const int group = static_cast<int>(random() % 300);
    std::vector<Ledger::Change> changes;
    for (auto p = static_cast<Position>(random() % 100); p < ledger.next_position();
         p += 1 + static_cast<Position>(random() % 900)) {
      const auto to = static_cast<Tier>(random() % kNumTiers);
      if (ledger.tiers(group)[p] == to) continue;
      changes.push_back({p, to});
      expected.push_back({Kind::kMoved, step, group, p, to});
    }
    ledger.Move(group, changes);
  }
  EXPECT_EQ(Events(ledger), expected);
}

TEST(LedgerTest, AMoveTakesTwoBytesAtMostBesidesItsHead) {
  Ledger ledger(std::vector<int>(1, 1));
  ledger.Append(8000);
  std::vector<Ledger::Change> changes;
  for (Position p = 0; p < 8000; ++p) changes.push_back({p, Tier::kT1});
  const size_t before = ledger.memory_bytes();
  ledger.Move(0, changes);
  // The log doubles; each move is a byte.
  EXPECT_LE(ledger.memory_bytes() - before, 2 * 8000 + 64);
}

}  // namespace
}  // namespace ebb
