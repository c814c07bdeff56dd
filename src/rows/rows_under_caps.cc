#include "src/rows/rows_under_caps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ebb/recent_windows.h"
#include "src/base/page_units.h"
#include "src/base/text/size_text.h"
#include "src/io/page_file.h"
#include "src/rows/arena.h"

namespace ebb {
namespace {

// Returns how many rows of each stream fit under the cap if all streams have the same number of
// pages. A group has as many rows as each of its streams, so that the number of groups does not
// matter. One page of each stream is not counted, because its last page is rarely full.
size_t RowsUnder(const ModelShape& shape, size_t page_bytes, bool in_file, uint64_t cap_bytes) {
  const uint64_t of_extent = std::max<uint64_t>(kExtentBytes / page_bytes, 1);
  uint64_t pages = cap_bytes / kExtentBytes * of_extent / shape.NumStreams();
  if (in_file) {
    // A segment has pages of one layer; each layer counts as if it had the most kv heads of any.
    pages = cap_bytes / PageFile::BytesFor(1, shape.num_layers, page_bytes) * kPagesPerSegment /
            shape.num_kv_heads;
  }
  return pages == 0 ? 0 : static_cast<size_t>(pages - 1) * kRowsPerPage;
}

}  // namespace

bool LiesInFile(const EngineTiers& tiers) {
  return tiers.t1.value_or(T1Place::kFile) == T1Place::kFile;
}

uint64_t BytesOfPages(const ModelShape& shape, size_t page_bytes, bool in_file,
                      uint64_t pages_of_stream) {
  if (!in_file) return Arena::BytesFor(pages_of_stream * shape.NumStreams(), page_bytes);
  return PageFile::BytesFor(pages_of_stream * shape.num_kv_heads, shape.num_layers, page_bytes);
}

RowsAvailable RowsUnderCaps(const EngineTiers& tiers, const ModelShape& shape, size_t page_bytes) {
  RowsAvailable rows;
  const auto rows_under = [&](uint64_t cap_bytes, bool in_file) {
    return RowsUnder(shape, page_bytes, in_file, cap_bytes);
  };
  if (tiers.t0_cap_bytes > 0) rows.t0 = rows_under(tiers.t0_cap_bytes, false);
  if (tiers.t1_cap_bytes > 0) {
    rows.t1 = rows_under(tiers.t1_cap_bytes, LiesInFile(tiers));
  }
  return rows;
}

Status CheckCaps(const EngineTiers& tiers, const ModelShape& shape, size_t page_bytes,
                 int interval) {
  const auto between = static_cast<size_t>(std::max(interval, 0));
  const RowsAvailable rows = RowsUnderCaps(tiers, shape, page_bytes);
  const auto refuse = [&](std::string_view tier, uint64_t cap_bytes, bool in_file) {
    const size_t num_pages = PagesFor(between + 1) + 1;
    const ComparedSizes sizes(cap_bytes, BytesOfPages(shape, page_bytes, in_file, num_pages));
    return InvalidArgument(fmt::format(
        "{} of {} is too small: an interval of {} rows and a page of {} are kept in reserve, "
        "so it needs {}",
        tier, sizes.first, between, kRowsPerPage, sizes.second));
  };
  if (rows.t0 <= between) return refuse("T0", tiers.t0_cap_bytes, false);
  if (tiers.t1 != T1Place::kNone && rows.t1 <= between) {
    return refuse("T1", tiers.t1_cap_bytes, LiesInFile(tiers));
  }
  return OkStatus();
}

Status CheckCapOfSelection(const EngineTiers& tiers, const ModelShape& shape, size_t page_bytes,
                           size_t num_rows) {
  const uint64_t needed = BytesOfPages(shape, page_bytes, /*in_file=*/false, PagesFor(num_rows));
  if (tiers.t0_cap_bytes == 0 || tiers.t0_cap_bytes >= needed) return OkStatus();
  const ComparedSizes sizes(tiers.t0_cap_bytes, needed);
  return InvalidArgument(
      "tiers.t0_cap_bytes",
      fmt::format("{} are too few: where selected rows are read, T0 holds {} rows and those "
                  "of a step, {} in all, so it needs {}",
                  sizes.first, RowsInT0Text(kNewestBesideSelectedT1), num_rows, sizes.second));
}

}  // namespace ebb
