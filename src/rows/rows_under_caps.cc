#include "src/rows/rows_under_caps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ebb/recent_windows.h"
#include "src/base/page_units.h"

namespace ebb {
namespace {

// The pages of all streams, one of each layer and kv head. An even share of the bytes is a share of
// the groups' streams too, so the number of groups cancels out.
class CappedTier {
 public:
  CappedTier(const ModelShape& shape, size_t page_bytes, bool is_file)
      : shape_(shape), page_bytes_(page_bytes), is_file_(is_file) {}

  // A page of each stream is left out, since the last one is rarely full.
  [[nodiscard]] size_t RowsUnder(uint64_t cap_bytes) const {
    const uint64_t pages = PagesUnder(cap_bytes);
    return pages == 0 ? 0 : static_cast<size_t>(pages - 1) * kRowsPerPage;
  }

  // The least cap that holds so many pages of each stream.
  [[nodiscard]] uint64_t BytesFor(size_t num_pages) const {
    if (!is_file_) return DivideUp(num_pages * NumStreams(), PagesInExtent()) * kExtentBytes;
    return DivideUp(num_pages * NumKvHeads(), kPagesPerSegment) * SegmentBytes() * NumLayers();
  }

 private:
  static uint64_t DivideUp(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

  [[nodiscard]] uint64_t PagesUnder(uint64_t cap_bytes) const {
    if (!is_file_) return cap_bytes / kExtentBytes * PagesInExtent() / NumStreams();
    // A segment belongs to one layer: each counts as if it had the most kv heads of any.
    return cap_bytes / SegmentBytes() / NumLayers() * kPagesPerSegment / NumKvHeads();
  }
  [[nodiscard]] uint64_t PagesInExtent() const {
    return std::max<uint64_t>(kExtentBytes / page_bytes_, 1);
  }
  [[nodiscard]] uint64_t SegmentBytes() const { return page_bytes_ * kPagesPerSegment; }
  [[nodiscard]] uint64_t NumLayers() const { return static_cast<uint64_t>(shape_.num_layers); }
  [[nodiscard]] uint64_t NumStreams() const { return static_cast<uint64_t>(shape_.NumStreams()); }
  [[nodiscard]] uint64_t NumKvHeads() const { return static_cast<uint64_t>(shape_.num_kv_heads); }

  const ModelShape& shape_;
  const uint64_t page_bytes_;
  const bool is_file_;
};

}  // namespace

RowsAvailable RowsUnderCaps(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes) {
  RowsAvailable rows;
  const CappedTier t0(shape, page_bytes, /*is_file=*/false);
  const CappedTier t1(shape, page_bytes, tiers.t1 == T1Place::kFile);
  if (tiers.t0_cap_bytes > 0) rows.t0 = t0.RowsUnder(tiers.t0_cap_bytes);
  if (tiers.t1_cap_bytes > 0) rows.t1 = t1.RowsUnder(tiers.t1_cap_bytes);
  return rows;
}

Status CheckCaps(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes, int interval) {
  const auto between = static_cast<size_t>(std::max(interval, 0));
  const RowsAvailable rows = RowsUnderCaps(tiers, shape, page_bytes);
  const auto refuse = [&](std::string_view tier, uint64_t cap_bytes, bool is_file) {
    const size_t num_pages = (between + kRowsPerPage) / kRowsPerPage + 1;
    return InvalidArgument(fmt::format(
        "{} of {} bytes is too small: an interval of {} rows and a page of {} are kept in reserve, "
        "so it needs {}",
        tier, cap_bytes, between, kRowsPerPage,
        CappedTier(shape, page_bytes, is_file).BytesFor(num_pages)));
  };
  if (rows.t0 <= between) return refuse("T0", tiers.t0_cap_bytes, false);
  if (tiers.t1 != T1Place::kNone && rows.t1 <= between) {
    return refuse("T1", tiers.t1_cap_bytes, tiers.t1 == T1Place::kFile);
  }
  return OkStatus();
}

Status CheckCapOfSelection(const TierSpec& tiers, const ModelShape& shape, size_t page_bytes,
                           size_t num_rows) {
  const CappedTier t0(shape, page_bytes, /*is_file=*/false);
  const uint64_t needed = t0.BytesFor((num_rows + kRowsPerPage - 1) / kRowsPerPage);
  if (tiers.t0_cap_bytes == 0 || tiers.t0_cap_bytes >= needed) return OkStatus();
  return InvalidArgument(
      "tiers.t0_cap_bytes",
      fmt::format("{} bytes are too few: where selected rows are read, T0 holds {} rows and those "
                  "of a step, {} in all, so it needs {}",
                  tiers.t0_cap_bytes, RowsInT0Text(kNewestBesideSelectedT1), num_rows, needed));
}

}  // namespace ebb
