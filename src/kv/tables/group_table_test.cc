#include "src/kv/tables/group_table.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/expect_ok.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Returns a table of ten rows, of which 2, 3 and 7 are in T2 and 4 in T1.
GroupTable TableInThreeTiers() {
  GroupTable table;
  std::vector<TablePage> added, freed;
  std::vector<SlotMove> moves;
  table.Append(0, 10, &added);
  table.rows.Relocate(std::vector<uint32_t>{2, 3, 7}, Tier::kT2, &moves, &added, &freed);
  table.rows.Relocate(std::vector<uint32_t>{4}, Tier::kT1, &moves, &added, &freed);
  table.ListFormats();
  return table;
}

std::vector<uint32_t> Values(std::span<const Slot> slots) {
  std::vector<uint32_t> values;
  for (const Slot slot : slots) values.push_back(slot.value);
  return values;
}

TEST(GroupTable, ListsTheRowsOfEachFormatInOrderOfPosition) {
  GroupTable table = TableInThreeTiers();
  ExpectOk(table.Validate());
  EXPECT_THAT(table.FullPositions(), ElementsAre(0, 1, 4, 5, 6, 8, 9));
  EXPECT_THAT(table.FullIndices(), ElementsAre(0, 1, 4, 5, 6, 8, 9));
  EXPECT_THAT(Values(table.FullSlots()), ElementsAre(0, 1, 128, 5, 6, 8, 9));
  EXPECT_THAT(table.CompressedIndices(), ElementsAre(2, 3, 7));
  EXPECT_THAT(Values(table.CompressedSlots()), ElementsAre(64, 65, 66));
  EXPECT_EQ(table.NumFirstRows(), 2u);
  table.SplitByTier();
  EXPECT_THAT(table.by_tier[0].indices, ElementsAre(0, 1, 5, 6, 8, 9));
  EXPECT_THAT(table.by_tier[1].indices, ElementsAre(4));
}

TEST(GroupTable, WithoutRowsInT2AllRowsAreFull) {
  GroupTable table = TableInThreeTiers();
  std::vector<TablePage> freed;
  table.rows.Remove(std::vector<uint32_t>{2, 3, 7}, &freed);
  table.ListFormats();
  ExpectOk(table.Validate());
  EXPECT_THAT(table.FullPositions(), ElementsAre(0, 1, 4, 5, 6, 8, 9));
  EXPECT_THAT(table.FullIndices(), IsEmpty());
  EXPECT_THAT(table.CompressedIndices(), IsEmpty());
}

TEST(GroupTable, ARowThatIsHiddenIsHiddenInTheListOfFullRows) {
  GroupTable table = TableInThreeTiers();
  EXPECT_THAT(table.FullLastVisible(), IsEmpty());
  table.SetLastVisible(5, 20);
  constexpr Position kSeen = kVisibleForEver;
  EXPECT_THAT(table.FullLastVisible(), ElementsAre(kSeen, kSeen, kSeen, 20, kSeen, kSeen, kSeen));
  std::vector<TablePage> added;
  table.Append(10, 2, &added);
  EXPECT_THAT(table.FullPositions(), ElementsAre(0, 1, 4, 5, 6, 8, 9, 10, 11));
  EXPECT_EQ(table.FullLastVisible().size(), 9u);
  ExpectOk(table.Validate());
  table.SetLastVisible(5, kSeen);
  EXPECT_THAT(table.FullLastVisible(), IsEmpty());
  ExpectOk(table.Validate());
}

}  // namespace
}  // namespace ebb
