#include "src/kv/tables/token_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint32_t> Iota(uint32_t begin, uint32_t end, uint32_t step = 1) {
  std::vector<uint32_t> indices;
  for (uint32_t i = begin; i < end; i += step) indices.push_back(i);
  return indices;
}

std::vector<uint32_t> Indices(const std::vector<TablePage>& pages) {
  std::vector<uint32_t> indices;
  for (const TablePage& page : pages) indices.push_back(page.index);
  return indices;
}

std::vector<uint32_t> SlotsOf(const TokenTable& table) {
  std::vector<uint32_t> slots;
  for (const Slot slot : table.slots()) slots.push_back(slot.value);
  return slots;
}

class TokenTableTest : public ::testing::Test {
 protected:
  ~TokenTableTest() override {
    const Status status = table_.Validate();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  void Append(Position first, size_t num_rows) {
    added_.clear();
    table_.Append(first, num_rows, &added_);
  }
  void Remove(const std::vector<uint32_t>& removed) {
    freed_.clear();
    table_.Remove(removed, &freed_);
  }

  TokenTable table_;
  std::vector<TablePage> added_;
  std::vector<TablePage> freed_;
  std::vector<SlotMove> moves_;
};

TEST_F(TokenTableTest, RowsThatFollowEachOtherTakeSlotsThatFollowEachOther) {
  Append(0, 65);
  EXPECT_THAT(Indices(added_), ElementsAre(0, 1));
  EXPECT_EQ(table_.num_pages(), 2u);
  for (uint32_t i = 0; i < 65; ++i) {
    EXPECT_EQ(table_.slots()[i].value, i);
    EXPECT_EQ(table_.positions()[i], static_cast<Position>(i));
  }
  EXPECT_TRUE(table_.last_visible().empty());
}

TEST_F(TokenTableTest, PagesNeededCountsFreeSlotsFirst) {
  EXPECT_EQ(table_.PagesNeeded(0), 0u);
  EXPECT_EQ(table_.PagesNeeded(1), 1u);
  EXPECT_EQ(table_.PagesNeeded(64), 1u);
  EXPECT_EQ(table_.PagesNeeded(65), 2u);
  Append(0, 65);
  EXPECT_EQ(table_.PagesNeeded(63), 0u);
  EXPECT_EQ(table_.PagesNeeded(64), 1u);
}

TEST_F(TokenTableTest, FreedSlotsAreUsedBeforeNewPagesTheLowestFirst) {
  Append(0, 128);
  Remove({3, 70, 100});
  Append(200, 4);
  EXPECT_THAT(Indices(added_), ElementsAre(2));
  const std::vector<uint32_t> slots = SlotsOf(table_);
  EXPECT_THAT(std::vector(slots.end() - 4, slots.end()), ElementsAre(3, 70, 100, 128));
  EXPECT_EQ(table_.positions()[125], 200);
}

TEST_F(TokenTableTest, RemoveTakesExactlyTheNamedRows) {
  Append(10, 8);
  table_.SetLastVisible(3, 90);
  Remove({0, 1, 4, 7});
  EXPECT_THAT(table_.positions(), ElementsAre(12, 13, 15, 16));
  EXPECT_THAT(SlotsOf(table_), ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(table_.last_visible(),
              ElementsAre(kVisibleForEver, 90, kVisibleForEver, kVisibleForEver));
  Remove({});
  EXPECT_EQ(table_.num_rows(), 4u);
}

TEST_F(TokenTableTest, APageWithoutRowsLeavesAndItsIndexIsUsedAgain) {
  Append(0, 192);
  Remove(Iota(64, 128));
  EXPECT_THAT(Indices(freed_), ElementsAre(1));
  EXPECT_FALSE(table_.HasPage(1));
  EXPECT_EQ(table_.page_end(), 3u);
  Append(500, 65);
  EXPECT_THAT(Indices(added_), ElementsAre(1, 3));
  EXPECT_EQ(table_.slots()[128].value, 64u);
}

TEST_F(TokenTableTest, TruncateRemovesThePositionAndWhatFollowsIt) {
  Append(0, 100);
  Remove({50});
  table_.SetLastVisible(98, 200);
  table_.TruncateTo(50, &freed_);
  EXPECT_EQ(table_.num_rows(), 50u);
  EXPECT_EQ(table_.positions().back(), 49);
  EXPECT_THAT(Indices(freed_), ElementsAre(1));
  EXPECT_TRUE(table_.last_visible().empty());
  table_.TruncateTo(50, &freed_);
  EXPECT_EQ(table_.num_rows(), 50u);
  table_.TruncateTo(0, &freed_);
  EXPECT_EQ(table_.num_rows(), 0u);
}

TEST_F(TokenTableTest, LastVisiblePositionsExistOnlyWhileSomeRowHasOne) {
  Append(0, 3);
  table_.SetLastVisible(1, kVisibleForEver);
  EXPECT_TRUE(table_.last_visible().empty());
  table_.SetLastVisible(1, 7);
  table_.SetLastVisible(1, 9);
  EXPECT_THAT(table_.last_visible(), ElementsAre(kVisibleForEver, 9, kVisibleForEver));
  Append(3, 1);
  EXPECT_EQ(table_.last_visible()[3], kVisibleForEver);
  Remove({1});
  EXPECT_TRUE(table_.last_visible().empty());
}

TEST_F(TokenTableTest, CompactEmptiesTheSparsestPagesWithTheFewestMoves) {
  Append(0, 256);
  // Rows left: page 0: 60, page 1: 3, page 2: 64, page 3: 2.
  std::vector<uint32_t> removed = Iota(0, 256);
  std::erase_if(removed, [](uint32_t row) {
    return (row >= 4 && row < 66) || row == 100 || (row >= 128 && row < 192) || row == 200 ||
           row == 255;
  });
  Remove(removed);
  ASSERT_THAT(freed_, IsEmpty());
  table_.Compact(Tier::kT0, SIZE_MAX, &moves_, &freed_);
  // 129 rows need three pages.
  EXPECT_THAT(Indices(freed_), ElementsAre(3));
  ASSERT_EQ(moves_.size(), 2u);
  EXPECT_EQ(moves_[0].from.value, 200u);
  EXPECT_EQ(moves_[0].to.value, 0u);
  EXPECT_EQ(moves_[1].from.value, 255u);
  EXPECT_EQ(moves_[1].to.value, 1u);
  EXPECT_EQ(table_.slots()[127].value, 0u);
  EXPECT_EQ(table_.slots()[128].value, 1u);
  EXPECT_EQ(table_.positions()[128], 255);
}

TEST_F(TokenTableTest, CompactMovesNothingUnlessAPageIsFreed) {
  Append(0, 128);
  Remove(Iota(0, 126, 2));  // 65 rows are left, 32 of them in page 0
  table_.Compact(Tier::kT0, SIZE_MAX, &moves_, &freed_);
  EXPECT_THAT(moves_, IsEmpty());
  Remove({0});
  table_.Compact(Tier::kT0, 30, &moves_, &freed_);
  EXPECT_THAT(moves_, IsEmpty());
  table_.Compact(Tier::kT0, 31, &moves_, &freed_);
  EXPECT_EQ(moves_.size(), 31u);
  EXPECT_EQ(freed_.size(), 1u);
  EXPECT_EQ(table_.num_pages(), 1u);
}

TEST_F(TokenTableTest, RelocatedRowsKeepTheirPositionsAndLieTogether) {
  Append(0, 130);
  added_.clear();
  table_.Relocate(Iota(0, 130, 2), Tier::kT1, &moves_, &added_, &freed_);
  EXPECT_EQ(moves_.size(), 65u);
  EXPECT_THAT(added_, ElementsAre(TablePage{3, Tier::kT1}, TablePage{4, Tier::kT1}));
  EXPECT_EQ(table_.num_rows(Tier::kT1), 65u);
  EXPECT_EQ(table_.num_pages(Tier::kT1), 2u);
  for (uint32_t row = 0; row < 130; ++row) {
    EXPECT_EQ(table_.positions()[row], static_cast<Position>(row));
    const Tier tier = table_.TierOf(table_.slots()[row].page());
    EXPECT_EQ(tier, row % 2 == 0 ? Tier::kT1 : Tier::kT0) << row;
  }
  moves_.clear();
  freed_.clear();
  table_.Relocate(Iota(0, 130, 2), Tier::kT0, &moves_, &added_, &freed_);
  EXPECT_THAT(freed_, ElementsAre(TablePage{3, Tier::kT1}, TablePage{4, Tier::kT1}));
}

TEST_F(TokenTableTest, EachTierFillsItsOwnPages) {
  Append(0, 6);
  added_.clear();
  table_.Relocate(Iota(0, 2), Tier::kT2, &moves_, &added_, &freed_);
  table_.Relocate(Iota(2, 3), Tier::kT1, &moves_, &added_, &freed_);
  EXPECT_THAT(added_, ElementsAre(TablePage{1, Tier::kT2}, TablePage{2, Tier::kT1}));
  EXPECT_THAT(SlotsOf(table_), ElementsAre(64, 65, 128, 3, 4, 5));
  EXPECT_EQ(table_.num_full_rows(), 4u);
  EXPECT_EQ(table_.num_rows(Tier::kT2), 2u);
  Append(6, 4);
  EXPECT_THAT(SlotsOf(table_), ElementsAre(64, 65, 128, 3, 4, 5, 0, 1, 2, 6))
      << "a row joins T0 in the free slots of T0 alone";
  table_.Relocate(Iota(3, 5), Tier::kT2, &moves_, &added_, &freed_);
  EXPECT_EQ(table_.slots()[4].value, 67u);
  EXPECT_TRUE(table_.HasPage(1, Tier::kT2));
  EXPECT_FALSE(table_.HasPage(1, Tier::kT0));
  table_.Relocate(Iota(0, 2), Tier::kT1, &moves_, &added_, &freed_);
  EXPECT_THAT(freed_, IsEmpty());
  table_.Relocate(Iota(3, 5), Tier::kT0, &moves_, &added_, &freed_);
  EXPECT_THAT(freed_, ElementsAre(TablePage{1, Tier::kT2}));
}

TEST_F(TokenTableTest, CompactTouchesOneTierOnly) {
  Append(0, 256);
  table_.Relocate(Iota(0, 128), Tier::kT1, &moves_, &added_, &freed_);
  Remove(Iota(1, 256, 2));
  moves_.clear();
  freed_.clear();
  table_.Compact(Tier::kT1, SIZE_MAX, &moves_, &freed_);
  EXPECT_EQ(moves_.size(), 32u);
  EXPECT_EQ(table_.num_pages(Tier::kT1), 1u);
  EXPECT_EQ(table_.num_pages(Tier::kT0), 2u);
}

TEST_F(TokenTableTest, TablesCostAtMostTwelveBytesARow) {
  for (Position i = 0; i < 8000; ++i) Append(i, 1);
  EXPECT_LE(table_.table_bytes(), 12u * 8000);
  EXPECT_GE(table_.table_bytes(), 8u * 8000);
  EXPECT_LE(table_.table_bytes(), TokenTable::BytesFor(8000, 125));
  EXPECT_GE(table_.table_bytes() * 5 / 4, TokenTable::BytesFor(8000, 125));
}

TEST_F(TokenTableTest, ShrinkingGivesTableMemoryBack) {
  Append(0, 8000);
  std::vector<uint32_t> removed = Iota(0, 8000);
  std::erase_if(removed, [](uint32_t row) { return row % 8 == 0; });
  Remove(removed);
  EXPECT_LE(table_.table_bytes(), 24u * 1000);
  Remove(Iota(0, 1000));
  EXPECT_LE(table_.table_bytes(), 1024u);
}

TEST_F(TokenTableTest, RandomUseAgreesWithAMapFromPositionToWhatItsSlotHolds) {
  std::mt19937 random(3);
  std::map<Position, Position> model;         // position -> the position that wrote the slot
  std::vector<Position> memory(64 * 40, -1);  // by slot
  Position next = 0;
  for (int step = 0; step < 20000; ++step) {
    const int op = static_cast<int>(random() % 10);
    freed_.clear();
    if (op < 6 && table_.num_rows() < 1000) {
      const size_t num_rows = 1 + random() % 20;
      Append(next, num_rows);
      for (size_t i = table_.num_rows() - num_rows; i < table_.num_rows(); ++i) {
        ASSERT_LT(table_.slots()[i].value, memory.size());
        memory[table_.slots()[i].value] = next;
        model[next] = next;
        ++next;
      }
    } else if (op < 8) {
      std::vector<uint32_t> removed;
      const uint32_t rarity = op == 6 ? 100 : 3;
      for (uint32_t i = 0; i < table_.num_rows(); ++i) {
        if (random() % rarity != 0) continue;
        removed.push_back(i);
        model.erase(table_.positions()[i]);
      }
      Remove(removed);
    } else if (op == 8) {
      moves_.clear();
      table_.Compact(Tier::kT0, random() % 200, &moves_, &freed_);
      for (const SlotMove& move : moves_) memory[move.to.value] = memory[move.from.value];
    } else if (random() % 20 == 0) {
      next -= static_cast<Position>(random() % 50);
      next = std::max(next, 0);
      table_.TruncateTo(next, &freed_);
      model.erase(model.lower_bound(next), model.end());
    }
    ASSERT_EQ(table_.num_rows(), model.size());
    size_t i = 0;
    for (const auto& [position, writer] : model) {
      ASSERT_EQ(table_.positions()[i], position);
      ASSERT_EQ(memory[table_.slots()[i].value], writer);
      ++i;
    }
    if (step % 100 == 0) {
      ASSERT_TRUE(table_.Validate().ok());
    }
  }
}

// Applies the moves to memory in which every slot holds the position of its row.
std::map<uint32_t, Position> Moved(std::map<uint32_t, Position> memory,
                                   const std::vector<SlotMove>& moves) {
  for (const SlotMove& move : moves) memory[move.to.value] = memory.at(move.from.value);
  memory.erase(kSpareSlot.value);
  return memory;
}

std::map<uint32_t, Position> RowsBySlot(const TokenTable& table) {
  std::map<uint32_t, Position> rows;
  for (size_t i = 0; i < table.num_rows(); ++i) rows[table.slots()[i].value] = table.positions()[i];
  return rows;
}

TEST_F(TokenTableTest, SortingPutsRowsInOrderOfPositionInTheSlotsThatTheyHave) {
  std::mt19937 random(1);
  Append(0, 150);
  for (Position next = 150; next < 400; ++next) {
    Remove({static_cast<uint32_t>(random() % table_.num_rows())});
    if (next % 10 != 0) Append(next, 1);
  }
  const auto before = RowsBySlot(table_);
  const std::vector<Position> positions(table_.positions().begin(), table_.positions().end());
  ASSERT_GT(table_.CountStrays(), 64u);
  table_.Sort(&moves_);
  EXPECT_TRUE(std::ranges::is_sorted(table_.slots()));
  EXPECT_THAT(table_.positions(), ::testing::ElementsAreArray(positions));
  EXPECT_EQ(Moved(before, moves_), RowsBySlot(table_));
  EXPECT_LT(table_.CountStrays(), 5u);  // what lies behind many holes
  std::vector<uint32_t> slots_before;
  for (const auto& [slot, position] : before) slots_before.push_back(slot);
  EXPECT_THAT(SlotsOf(table_), ::testing::ElementsAreArray(slots_before));
}

TEST_F(TokenTableTest, SortingLeavesRowsOfT2WhereTheyLie) {
  Append(0, 200);
  table_.Relocate(Iota(0, 200, 3), Tier::kT2, &moves_, &added_, &freed_);
  EXPECT_LT(table_.CountStrays(), 5u) << "rows of T2 lie between no others";
  EXPECT_EQ(table_.num_slots_taken(), 0u);
  Append(200, 60);
  const auto before = RowsBySlot(table_);
  EXPECT_EQ(table_.num_slots_taken(), 60u);
  moves_.clear();
  table_.Sort(&moves_);
  EXPECT_EQ(Moved(before, moves_), RowsBySlot(table_));
  std::vector<Slot> in_t0;
  for (size_t row = 0; row < table_.num_rows(); ++row) {
    const bool is_compressed = row < 200 && row % 3 == 0;
    EXPECT_EQ(table_.TierOf(table_.slots()[row]), is_compressed ? Tier::kT2 : Tier::kT0) << row;
    if (!is_compressed) in_t0.push_back(table_.slots()[row]);
  }
  EXPECT_TRUE(std::ranges::is_sorted(in_t0));
}

TEST_F(TokenTableTest, SortingMovesNoRowOfATableInOrder) {
  Append(0, 100);
  Remove({0, 5, 77});
  table_.Sort(&moves_);
  EXPECT_THAT(moves_, IsEmpty());
}

TEST_F(TokenTableTest, OneRowAtATimeWaitsBesideTheTable) {
  Append(0, 10);
  Remove({2, 9});
  Append(10, 1);  // in slot 2: rows 2 to 8 move up by one
  Append(11, 1);
  Remove({0});
  Append(12, 1);
  table_.Sort(&moves_);
  int num_waiting = 0, num_waited = 0;
  for (const SlotMove& move : moves_) {
    if (move.from == kSpareSlot) --num_waiting;
    if (move.to == kSpareSlot) ++num_waiting, ++num_waited;
    EXPECT_GE(num_waiting, 0);
    EXPECT_LE(num_waiting, 1);
  }
  EXPECT_EQ(num_waiting, 0);
  EXPECT_GT(num_waited, 0);
}

TEST_F(TokenTableTest, TwoRingsOfRowsTurnOneAfterTheOther) {
  ASSERT_TRUE(table_
                  .Restore({.pages = {{.used = 0xff}},
                            .positions = {1, 0, 2, 3, 4, 6, 7, 5},
                            .last_visible = {}},
                           &added_)
                  .ok());
  const auto before = RowsBySlot(table_);
  table_.Sort(&moves_);
  EXPECT_EQ(std::ranges::count(moves_, kSpareSlot, &SlotMove::to), 2);
  EXPECT_EQ(std::ranges::count(moves_, kSpareSlot, &SlotMove::from), 2);
  EXPECT_EQ(moves_.size(), 2u + 3u + 2u);
  EXPECT_EQ(Moved(before, moves_), RowsBySlot(table_));
}

TEST_F(TokenTableTest, StraysAreRowsThatLieElsewhereThanJustBehindTheRowBefore) {
  Append(0, 128);
  EXPECT_EQ(table_.num_slots_taken(), 128u);
  EXPECT_EQ(table_.CountStrays(), 0u);
  EXPECT_EQ(table_.num_slots_taken(), 0u);
  Remove({3, 4, 50, 51, 52, 100});
  EXPECT_EQ(table_.CountStrays(), 0u);
  Append(128, 8);  // in slots 3, 4, 50, 51, 52, 100, 128 and 129
  EXPECT_EQ(table_.num_slots_taken(), 8u);
  EXPECT_EQ(table_.CountStrays(), 4u);
  Remove({122, 123});  // those in slots 3 and 4
  EXPECT_EQ(table_.CountStrays(), 3u);
}

}  // namespace
}  // namespace ebb
