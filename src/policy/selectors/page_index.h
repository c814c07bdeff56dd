// Works on the pages of a selector, which are runs of consecutive rows of a group in order of
// position. A list of pages holds the number of rows of each; evicted rows leave shorter pages.
#ifndef EBB_POLICY_SELECTORS_PAGE_INDEX_H_
#define EBB_POLICY_SELECTORS_PAGE_INDEX_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace ebb {

// Returns how many rows of each page stay. kept: ascending indices of the rows that stay.
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

// Replaces `rows` by the row ranges of the chosen pages. pages: number of rows of each page.
// chosen: [pages + 1], with 0 after the last page. Needs room for (pages + 1) / 2 ranges. REQUIRES:
// the newest page is chosen.
//
// The loop has no branch per page, since the processor could not predict which pages are chosen: it
// writes the current range at every page, and moves on to the next range only after the last page
// of a run of chosen pages.
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
