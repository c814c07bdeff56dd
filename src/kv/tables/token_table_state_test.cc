#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "src/kv/tables/token_table.h"
#include "tests/support/expect_ok.h"

namespace ebb {
namespace {

// A table after some life: holes, both tiers, hidden rows.
TokenTable LivedTable(uint64_t seed) {
  std::mt19937_64 random(seed);
  TokenTable table;
  std::vector<TablePage> added, freed;
  std::vector<SlotMove> moves;
  for (Position next = 0; next < 600; next += 40) {
    table.Append(next, 40, &added);
    std::vector<uint32_t> gone, demoted, compressed;
    for (uint32_t row = 0; row < table.num_rows(); ++row) {
      if (row > 0 && random() % 5 == 0) gone.push_back(row);
    }
    table.Remove(gone, &freed);
    for (uint32_t row = 0; row < table.num_rows(); ++row) {
      const bool in_t0 = table.TierOf(table.slots()[row].page()) == Tier::kT0;
      if (in_t0 && row > 0 && random() % 2 == 0) {
        (random() % 2 == 0 ? demoted : compressed).push_back(row);
      }
    }
    moves.clear();
    table.Relocate(demoted, Tier::kT1, &moves, &added, &freed);
    table.Relocate(compressed, Tier::kT2, &moves, &added, &freed);
  }
  table.SetLastVisible(0, 500);
  return table;
}

// Compares all that the owner of a table can see, except the numbers of pages.
void ExpectSame(const TokenTable& a, const TokenTable& b) {
  EXPECT_TRUE(std::ranges::equal(a.positions(), b.positions()));
  EXPECT_TRUE(std::ranges::equal(a.last_visible(), b.last_visible()));
  for (const Tier tier : TokenTable::kTiers) {
    EXPECT_EQ(a.num_rows(tier), b.num_rows(tier));
    EXPECT_EQ(a.num_pages(tier), b.num_pages(tier));
  }
  for (size_t row = 0; row < a.num_rows(); ++row) {
    EXPECT_EQ(a.slots()[row].row(), b.slots()[row].row());
    EXPECT_EQ(a.TierOf(a.slots()[row].page()), b.TierOf(b.slots()[row].page()));
  }
}

TEST(TokenTableState, ATableComesBackAsItWas) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TokenTable table = LivedTable(seed);
    TokenTable restored;
    std::vector<TablePage> added;
    ExpectOk(restored.Restore(table.State(), &added));
    ExpectOk(restored.Validate());
    ExpectSame(table, restored);
    EXPECT_EQ(added.size(), table.num_pages());
    EXPECT_EQ(restored.page_end(), added.size());
  }
}

TEST(TokenTableState, ItGoesOnAsItWouldHave) {
  TokenTable table = LivedTable(3);
  TokenTable restored;
  std::vector<TablePage> added, freed;
  std::vector<SlotMove> moves, restored_moves;
  ExpectOk(restored.Restore(table.State(), &added));
  for (TokenTable* one : {&table, &restored}) {
    one->Append(600, 100, &added);
    one->TruncateTo(650, &freed);
  }
  table.Compact(Tier::kT0, 1000, &moves, &freed);
  restored.Compact(Tier::kT0, 1000, &restored_moves, &freed);
  EXPECT_EQ(moves.size(), restored_moves.size());
  ExpectOk(restored.Validate());
  EXPECT_TRUE(std::ranges::equal(table.positions(), restored.positions()));
}

TEST(TokenTableState, AnEmptyTableComesBack) {
  TokenTable restored;
  std::vector<TablePage> added;
  ExpectOk(restored.Restore(TokenTable().State(), &added));
  ExpectOk(restored.Validate());
  EXPECT_TRUE(added.empty());
}

TEST(TokenTableState, WhatIsNoTableIsRefusedAndChangesNothing) {
  const TokenTableState good = LivedTable(1).State();
  const auto refused = [](const TokenTableState& state) {
    TokenTable table;
    std::vector<TablePage> added;
    const Status status = table.Restore(state, &added);
    EXPECT_EQ(table.num_rows(), 0u);
    EXPECT_EQ(table.page_end(), 0u);
    EXPECT_TRUE(added.empty());
    return status.code() == StatusCode::kInvalidArgument;
  };
  TokenTableState bad = good;
  bad.positions[1] = bad.positions[0];
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.positions[1] = -1;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.positions.pop_back();
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.last_visible.pop_back();
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.pages[0].tier = Tier::kT3;
  EXPECT_TRUE(refused(bad));
  bad = good;
  bad.pages.push_back({});
  EXPECT_TRUE(refused(bad));
}

}  // namespace
}  // namespace ebb
