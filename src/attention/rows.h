// RowsView describes the cache as attention sees it: for one (layer, kv head), pages that contain
// rows in any order, and a list of the visible rows in order of position. Attention does not know
// to which tier or sequence a page belongs.
#ifndef EBB_ATTENTION_ROWS_H_
#define EBB_ATTENTION_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "ebb/tiers.h"
#include "ebb/types.h"
#include "src/base/page_units.h"

namespace ebb {

// kVisibleForEver is the last visible position of a row that no window hides.
inline constexpr Position kVisibleForEver = std::numeric_limits<Position>::max();

// PageFormat is the format of a page, which has first the keys of its rows, then their values, each
// row contiguous:
//   key   of row r: page + r * row_stride
//   value of row r: page + value_offset + r * row_stride
// Without values a page has only keys, and value_offset is 0: attention then sums whole keys, and
// the caller takes the values' part of the sum.
struct PageFormat {
  RowType type = RowType::kF16;
  int head_dim = 0;
  bool has_values = true;  // see ModelShape::has_values

  [[nodiscard]] static PageFormat Of(const ModelShape& shape, RowType type) {
    return {.type = type, .head_dim = shape.head_dim, .has_values = shape.has_values};
  }
  [[nodiscard]] size_t RowStride() const { return head_dim * RowTypeBytes(type); }
  // Return the distance in bytes from a key to its value: ValueOffset() in a page,
  // PackedValueOffset() in a row whose key and value are contiguous.
  [[nodiscard]] size_t ValueOffset() const { return has_values ? kRowsPerPage * RowStride() : 0; }
  [[nodiscard]] size_t PackedValueOffset() const { return has_values ? RowStride() : 0; }
  // Returns the bytes of a key and its value together.
  [[nodiscard]] size_t RowBytes() const { return (has_values ? 2 : 1) * RowStride(); }
  [[nodiscard]] size_t PageBytes() const { return kRowsPerPage * RowBytes(); }
};

// ChosenRows is a subset of a view's rows, divided into chunks. Start is the beginning of a chunk.
struct ChosenRows {
  struct Start {
    uint32_t range;
    uint32_t row;  // index in the view
  };
  std::span<const RowRange> ranges;  // ascending, disjoint, not adjacent, not empty
  std::span<const Start> chunks;     // [chunks]; CutIntoChunks() computes them
  size_t num_rows = 0;               // rows in all ranges
};

// Divides the ranges' rows into chunks, writes where each begins to `chunks`, and returns the
// number of rows. Allocates nothing if `chunks` has capacity.
size_t CutIntoChunks(std::span<const RowRange> ranges, std::vector<ChosenRows::Start>* chunks);

// RowsView lists the visible rows of one (layer, kv head), in order of position. REQUIRES: all
// spans outlive the step.
struct RowsView {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned; null: no row is visible
  std::span<const Slot> slots;              // [rows]
  std::span<const Position> positions;      // [rows], ascending
  std::span<const Position> last_visible;   // [rows]; empty: all rows stay visible
  // window is the number of tokens after which a row is hidden: a query at position p + window or
  // later does not see a row at p. 0: no row is hidden.
  int window = 0;
  ChosenRows chosen;  // for decode; without ranges: all rows

  // Returns the position of the last query that sees row `row`.
  [[nodiscard]] Position LastVisible(size_t row) const {
    const Position last = last_visible.empty() ? kVisibleForEver : last_visible[row];
    return window == 0 ? last : std::min(last, positions[row] + (window - 1));
  }

  // Returns how many rows attention reads: all, or the chosen ones.
  [[nodiscard]] size_t size() const {
    return chosen.ranges.empty() ? slots.size() : chosen.num_rows;
  }
};

// CompressedFormat is the format of a page of T2, which has whole rows: row r begins at page + r *
// RowStride(). Only the kernels for T2 know the format of a row (src/attention/compressed.h).
struct CompressedFormat {
  CompressedType type = CompressedType::kInt8;
  int head_dim = 0;
  bool has_values = true;  // false: values are parts of keys; see PageFormat
  // in_ggml_blocks is true if records are rows of ggml's quantized types
  // (src/attention/ggml_records.h), which ggml's backends can read without ebb's kernels. Attention
  // on the processor cannot read them.
  bool in_ggml_blocks = false;

  // Returns the format of T2 in a cache with full-precision rows of format `full`.
  [[nodiscard]] static CompressedFormat Of(const PageFormat& full, CompressedType type) {
    return {.type = type, .head_dim = full.head_dim, .has_values = full.has_values};
  }
  [[nodiscard]] size_t RowStride() const;  // bytes of a key with its value; a multiple of 2
  [[nodiscard]] size_t PageBytes() const { return (kRowsPerPage * RowStride() + 63) / 64 * 64; }
  // Returns whether keys are stored relative to a centre, one vector for all rows of a stream.
  [[nodiscard]] bool IsCentred() const { return type != CompressedType::kInt8Naive; }
};

// KeyFrame holds what the compressed keys of a stream have in common.
struct KeyFrame {
  const float* centre = nullptr;  // [head_dim], subtracted from every key; null: zeros
  const float* metric = nullptr;  // a KeyMetric (src/attention/trellis.h), used by int2 and int3
};

// CompressedRows lists the compressed rows of one (layer, kv head), in order of position.
struct CompressedRows {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned
  std::span<const Slot> slots;              // [num_rows]
  const float* key_centre = nullptr;        // [head_dim]; as KeyFrame::centre

  [[nodiscard]] size_t size() const { return slots.size(); }
};

}  // namespace ebb

#endif  // EBB_ATTENTION_ROWS_H_
