#include "src/kv/lent_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include "src/attention/rows.h"

namespace ebb {
namespace {

constexpr uint32_t kPage = kRowsPerPage;

GroupTable Rows(Position first, size_t num_rows) {
  GroupTable table;
  std::vector<TablePage> added;
  table.Append(first, num_rows, &added);
  return table;
}

void Remove(GroupTable* table, uint32_t first, uint32_t num_rows) {
  std::vector<uint32_t> rows(num_rows);
  std::iota(rows.begin(), rows.end(), first);
  std::vector<TablePage> freed;
  table->rows.Remove(rows, &freed);
}

void Demote(GroupTable* table, uint32_t first, uint32_t num_rows) {
  std::vector<uint32_t> rows(num_rows);
  std::iota(rows.begin(), rows.end(), first);
  std::vector<SlotMove> moves;
  std::vector<TablePage> added, freed;
  table->rows.Relocate(rows, Tier::kT1, &moves, &added, &freed);
}

TEST(LentRows, AreThoseOfWholePagesOfT1) {
  GroupTable own = Rows(0, 4 * kPage);
  Demote(&own, 0, 3 * kPage);
  GroupTable lender = Rows(0, 4 * kPage);
  Remove(&lender, 10, 60);  // rows of the first two pages
  LentRows lent;
  lent.Find(own, &lender);
  ASSERT_EQ(lent.num_pages(), 1u);
  EXPECT_GT(lent.table_bytes(), 4 * kPage * sizeof(uint32_t));
  for (uint32_t row = 0; row < 4 * kPage; ++row) {
    const bool is_lent = row >= 2 * kPage && row < 3 * kPage;
    EXPECT_EQ(lent.slots()[row].value,
              is_lent ? own.rows.page_end() * kPage + lender.rows.slots()[row - 60].value
                      : own.rows.slots()[row].value);
    EXPECT_EQ(lent.HasPage(own.rows.slots()[row].page()), is_lent);
  }
}

TEST(LentRows, AreGoneWithTheLender) {
  GroupTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  const GroupTable lender = Rows(0, kPage);
  LentRows lent;
  lent.Find(own, &lender);
  EXPECT_FALSE(lent.empty());
  lent.Find(own, nullptr);
  EXPECT_TRUE(lent.empty());
  EXPECT_FALSE(lent.HasPage(0));
}

TEST(LentRows, OfAPageWithHolesAreAllThatThereAre) {
  GroupTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  Remove(&own, 5, 20);
  const GroupTable lender = Rows(25, kPage);  // one row too many, five too few
  LentRows lent;
  lent.Find(own, &lender);
  EXPECT_TRUE(lent.empty());
  const GroupTable all = Rows(0, kPage);
  lent.Find(own, &all);
  EXPECT_EQ(lent.num_pages(), 1u);
  EXPECT_EQ(lent.slots()[5].value, own.rows.page_end() * kPage + 25);
}

TEST(LentRows, WhatTheLenderHasInT1IsNotLent) {
  GroupTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  GroupTable lender = Rows(0, kPage);
  Demote(&lender, 7, 1);
  LentRows lent;
  lent.Find(own, &lender);
  EXPECT_TRUE(lent.empty());
}

// Against maps from positions.
TEST(LentRows, OfRandomTablesAreWhatANaiveSearchFinds) {
  std::mt19937 random(3);
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  size_t num_lent = 0;
  for (int round = 0; round < 300; ++round) {
    const auto any = [&] {
      GroupTable table = Rows(static_cast<Position>(below(70)), 1 + below(500));
      for (int i = 0; i < 3; ++i) {
        const uint32_t first = below(static_cast<uint32_t>(table.rows.num_rows()));
        const auto rest = static_cast<uint32_t>(table.rows.num_rows()) - first;
        if (rest < table.rows.num_rows()) Remove(&table, first, 1 + below(std::min(rest, 90U)));
      }
      return table;
    };
    GroupTable own = any();
    Demote(&own, 0, 1 + below(static_cast<uint32_t>(own.rows.num_rows())));
    const GroupTable lender = any();
    LentRows lent;
    lent.Find(own, &lender);
    std::map<Position, uint32_t> theirs;
    for (size_t i = 0; i < lender.rows.num_rows(); ++i) {
      theirs[lender.rows.positions()[i]] = lender.rows.slots()[i].value;
    }
    std::map<uint32_t, bool> whole;  // pages of T1
    for (size_t i = 0; i < own.rows.num_rows(); ++i) {
      const uint32_t page = own.rows.slots()[i].page();
      if (own.rows.TierOf(page) != Tier::kT1) continue;
      whole.try_emplace(page, true);
      whole[page] = whole[page] && theirs.contains(own.rows.positions()[i]);
    }
    const auto pages = std::ranges::count_if(whole, [](const auto& page) { return page.second; });
    ASSERT_EQ(lent.num_pages(), static_cast<size_t>(pages)) << round;
    num_lent += pages;
    if (pages == 0) continue;
    for (size_t i = 0; i < own.rows.num_rows(); ++i) {
      const uint32_t page = own.rows.slots()[i].page();
      const bool is_lent = whole.contains(page) && whole[page];
      ASSERT_EQ(lent.HasPage(page), is_lent) << round;
      ASSERT_EQ(lent.slots()[i].value,
                is_lent ? own.rows.page_end() * kPage + theirs[own.rows.positions()[i]]
                        : own.rows.slots()[i].value)
          << round;
    }
  }
  EXPECT_GT(num_lent, 50u);
}

}  // namespace
}  // namespace ebb
