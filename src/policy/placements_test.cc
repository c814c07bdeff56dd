#include "src/policy/placements.h"

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(RowsAllowed, RoundsAPercentageUp) {
  struct Case {
    double percent;
    size_t base;
    size_t rows;
  };
  const Case cases[] = {
      {50, 0, 0},
      {50, 1, 1},
      {50, 2, 1},
      {50, 3, 2},
      {100, 7, 7},
      {1, 100, 1},
      {1, 101, 2},
      {97, 100, 97},
      {10, 30, 3},
      {33.3, 1000, 333},
      {16.1, 1000, 161},
      {64.4, 1000, 644},
      {0.1, 1000, 1},
      {12.5, 1 << 20, 1 << 17},
      {95, 1'000'000, 950'000},
      {90, 12345, 11111},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(RowsAllowed({Budget::Unit::kPercent, c.percent}, c.base), c.rows)
        << c.percent << " % of " << c.base;
  }
  // Every whole percentage of every base, against integers.
  for (size_t base = 0; base < 3000; base += 7) {
    for (size_t percent = 1; percent <= 100; ++percent) {
      ASSERT_EQ(RowsAllowed({Budget::Unit::kPercent, double(percent)}, base),
                (base * percent + 99) / 100);
    }
  }
}

TEST(RowsAllowed, OfABudgetInRowsIsThatBudget) {
  EXPECT_EQ(RowsAllowed({Budget::Unit::kRows, 64}, 3), 64u);
}

}  // namespace
}  // namespace ebb
