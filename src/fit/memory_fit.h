// How many rows the tiers hold of one sequence (src/policy/tier_forecast.h), and the bytes of
// pages. Pure arithmetic.
#ifndef EBB_FIT_MEMORY_FIT_H_
#define EBB_FIT_MEMORY_FIT_H_

#include <cstddef>
#include <cstdint>

#include "ebb/fit.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/policy/tier_forecast.h"

namespace ebb {

// As ForecastRows(); without tiers all rows stay in T0.
[[nodiscard]] Result<RowsOverTime> FollowRows(const ModelShape& shape, const FitRequest& request);

// So many pages in 2 MiB extents, none of which cuts a page.
[[nodiscard]] uint64_t ExtentBytes(uint64_t num_pages, size_t page_bytes);
// So many pages of each layer in the segments of a file.
[[nodiscard]] uint64_t SegmentBytes(uint64_t pages_per_layer, int num_layers, size_t page_bytes);

}  // namespace ebb

#endif  // EBB_FIT_MEMORY_FIT_H_
