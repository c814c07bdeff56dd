// How many rows the tiers hold of one sequence, by the counts of the hierarchy's placement
// (src/policy/hierarchy_placement.cc), and the bytes of pages. Pure arithmetic.
#ifndef EBB_FIT_MEMORY_FIT_H_
#define EBB_FIT_MEMORY_FIT_H_

#include <cstddef>
#include <cstdint>

#include "ebb/fit.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

// Rows of each (layer, kv head) of one sequence.
struct TierRows {
  size_t t0 = 0;
  size_t t1 = 0;
  size_t t2 = 0;
};
struct RowsOverTime {
  TierRows last;   // after the last token
  TierRows peaks;  // of each tier by itself
};
// Follows the decisions from the prompt to the last token. ResourceExhausted when the caps do not
// hold what must stay in full precision.
[[nodiscard]] Result<RowsOverTime> FollowRows(const ModelShape& shape, const FitRequest& request);

// Of so many pages in 2 MiB extents, none of which cuts a page.
[[nodiscard]] uint64_t ExtentBytes(uint64_t num_pages, size_t page_bytes);
// Of so many pages of each layer in the segments of a file.
[[nodiscard]] uint64_t SegmentBytes(uint64_t pages_per_layer, int num_layers, size_t page_bytes);

}  // namespace ebb

#endif  // EBB_FIT_MEMORY_FIT_H_
