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

TokenTable Rows(Position first, size_t num_rows) {
  TokenTable table;
  std::vector<TablePage> added;
  table.Append(first, num_rows, &added);
  return table;
}

void Remove(TokenTable* table, uint32_t first, uint32_t num_rows) {
  std::vector<uint32_t> rows(num_rows);
  std::iota(rows.begin(), rows.end(), first);
  std::vector<TablePage> freed;
  table->Remove(rows, &freed);
}

void Demote(TokenTable* table, uint32_t first, uint32_t num_rows) {
  std::vector<uint32_t> rows(num_rows);
  std::iota(rows.begin(), rows.end(), first);
  std::vector<SlotMove> moves;
  std::vector<TablePage> added, freed;
  table->Relocate(rows, Tier::kT1, &moves, &added, &freed);
}

TEST(LentRows, AreThoseOfWholePagesOfT1) {
  TokenTable own = Rows(0, 4 * kPage);
  Demote(&own, 0, 3 * kPage);
  TokenTable lender = Rows(0, 4 * kPage);
  Remove(&lender, 10, 60);  // rows of the first two pages
  LentRows lent;
  lent.Find(own, &lender);
  ASSERT_EQ(lent.num_pages(), 1u);
  EXPECT_GT(lent.table_bytes(), 4 * kPage * sizeof(uint32_t));
  for (uint32_t row = 0; row < 4 * kPage; ++row) {
    const bool is_lent = row >= 2 * kPage && row < 3 * kPage;
    EXPECT_EQ(lent.slots()[row].value, is_lent
                                           ? own.page_end() * kPage + lender.slots()[row - 60].value
                                           : own.slots()[row].value);
    EXPECT_EQ(lent.HasPage(own.slots()[row].page()), is_lent);
  }
}

TEST(LentRows, AreGoneWithTheLender) {
  TokenTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  const TokenTable lender = Rows(0, kPage);
  LentRows lent;
  lent.Find(own, &lender);
  EXPECT_FALSE(lent.empty());
  lent.Find(own, nullptr);
  EXPECT_TRUE(lent.empty());
  EXPECT_FALSE(lent.HasPage(0));
}

TEST(LentRows, OfAPageWithHolesAreAllThatThereAre) {
  TokenTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  Remove(&own, 5, 20);
  const TokenTable lender = Rows(25, kPage);  // one row too many, five too few
  LentRows lent;
  lent.Find(own, &lender);
  EXPECT_TRUE(lent.empty());
  const TokenTable all = Rows(0, kPage);
  lent.Find(own, &all);
  EXPECT_EQ(lent.num_pages(), 1u);
  EXPECT_EQ(lent.slots()[5].value, own.page_end() * kPage + 25);
}

TEST(LentRows, WhatTheLenderHasInT1IsNotLent) {
  TokenTable own = Rows(0, kPage);
  Demote(&own, 0, kPage);
  TokenTable lender = Rows(0, kPage);
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
      TokenTable table = Rows(static_cast<Position>(below(70)), 1 + below(500));
      for (int i = 0; i < 3; ++i) {
        const uint32_t first = below(static_cast<uint32_t>(table.num_rows()));
        const auto rest = static_cast<uint32_t>(table.num_rows()) - first;
        if (rest < table.num_rows()) Remove(&table, first, 1 + below(std::min(rest, 90U)));
      }
      return table;
    };
    TokenTable own = any();
    Demote(&own, 0, 1 + below(static_cast<uint32_t>(own.num_rows())));
    const TokenTable lender = any();
    LentRows lent;
    lent.Find(own, &lender);
    std::map<Position, uint32_t> theirs;
    for (size_t i = 0; i < lender.num_rows(); ++i) {
      theirs[lender.positions()[i]] = lender.slots()[i].value;
    }
    std::map<uint32_t, bool> whole;  // pages of T1
    for (size_t i = 0; i < own.num_rows(); ++i) {
      const uint32_t page = own.slots()[i].page();
      if (own.TierOf(page) != Tier::kT1) continue;
      whole.try_emplace(page, true);
      whole[page] = whole[page] && theirs.contains(own.positions()[i]);
    }
    const auto pages = std::ranges::count_if(whole, [](const auto& page) { return page.second; });
    ASSERT_EQ(lent.num_pages(), static_cast<size_t>(pages)) << round;
    num_lent += pages;
    if (pages == 0) continue;
    for (size_t i = 0; i < own.num_rows(); ++i) {
      const uint32_t page = own.slots()[i].page();
      const bool is_lent = whole.contains(page) && whole[page];
      ASSERT_EQ(lent.HasPage(page), is_lent) << round;
      ASSERT_EQ(lent.slots()[i].value, is_lent ? own.page_end() * kPage + theirs[own.positions()[i]]
                                               : own.slots()[i].value)
          << round;
    }
  }
  EXPECT_GT(num_lent, 50u);
}

}  // namespace
}  // namespace ebb
