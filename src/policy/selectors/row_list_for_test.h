// Lists a selector's choice row by row, for tests.
#ifndef EBB_POLICY_SELECTORS_ROW_LIST_FOR_TEST_H_
#define EBB_POLICY_SELECTORS_ROW_LIST_FOR_TEST_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/policy.h"
#include "gtest/gtest.h"

namespace ebb {

// Returns the rows of the ranges. Fails the test unless the ranges ascend and have rows between
// them.
inline std::vector<uint32_t> RowList(std::span<const RowRange> ranges) {
  std::vector<uint32_t> rows;
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_LT(ranges[i].begin, ranges[i].end);
    if (i > 0) {
      EXPECT_LT(ranges[i - 1].end, ranges[i].begin);
    }
    for (size_t row = ranges[i].begin; row < ranges[i].end; ++row) {
      rows.push_back(static_cast<uint32_t>(row));
    }
  }
  return rows;
}

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_ROW_LIST_FOR_TEST_H_
