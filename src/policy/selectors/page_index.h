// Functions on the pages of a selector: runs of consecutive rows of a group, in order of position.
// A page is given by its number of rows; evicted rows leave shorter pages.
#ifndef EBB_POLICY_SELECTORS_PAGE_INDEX_H_
#define EBB_POLICY_SELECTORS_PAGE_INDEX_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace ebb {

// How many of each page's rows stay. kept: ascending indices of rows.
inline std::vector<uint32_t> RowsLeft(std::span<const uint32_t> pages,
                                      std::span<const uint32_t> kept) {
  std::vector<uint32_t> left(pages.size(), 0);
  size_t page = 0;
  uint32_t end = pages.empty() ? 0 : pages[0];
  for (const uint32_t row : kept) {
    while (row >= end) end += pages[++page];
    ++left[page];
  }
  return left;
}

// Adds the ranges of the rows of the chosen pages. pages: rows of each. chosen: [pages + 1], the
// last one 0. Needs room for (pages + 1) / 2 ranges. REQUIRES: the newest page is chosen.
//
// Without a branch for each page: which are chosen cannot be foreseen. A range is written at each
// of its pages, and at pages that are not chosen; the next range overwrites it unless its last page
// was passed.
inline void WriteRanges(std::span<const uint32_t> pages, std::span<const uint8_t> chosen,
                        std::vector<RowRange>* rows) {
  assert(chosen[pages.size() - 1] != 0);  // or a range would be written behind the others' room
  rows->resize((pages.size() + 1) / 2);
  RowRange* range = rows->data();
  size_t begin = 0, end = 0;
  for (size_t page = 0; page < pages.size(); ++page) {
    end += pages[page];
    *range = {begin, end};
    range += chosen[page] > chosen[page + 1] ? 1 : 0;
    begin = chosen[page] != 0 ? begin : end;
  }
  rows->resize(range - rows->data());
}

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_PAGE_INDEX_H_
