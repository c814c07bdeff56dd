// Describes the cache as attention sees it: for one (layer, kv head), pages that hold rows in any
// order, and a list that names the visible rows in order of position. Attention does not know which
// tier or sequence a page belongs to.
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

// kVisibleForEver is the last visible position of a row that nothing hides.
inline constexpr Position kVisibleForEver = std::numeric_limits<Position>::max();

// PageFormat is the format of a page, which holds the keys of its rows, then their values, each row
// contiguous:
//   key   of row r: page + r * row_stride
//   value of row r: page + value_offset + r * row_stride
// Without values a page holds keys alone, and value_offset is 0: attention then sums whole keys,
// and the caller reads the values' part of the sum.
struct PageFormat {
  RowType type = RowType::kF16;
  int head_dim = 0;
  bool has_values = true;  // see ModelShape

  [[nodiscard]] static PageFormat Of(const ModelShape& shape, RowType type) {
    return {.type = type, .head_dim = shape.head_dim, .has_values = shape.has_values};
  }
  [[nodiscard]] size_t RowStride() const { return head_dim * RowTypeBytes(type); }
  // Returns the distance in bytes from a key to its value in a page; PackedValueOffset() returns
  // that in a packed row.
  [[nodiscard]] size_t ValueOffset() const { return has_values ? kRowsPerPage * RowStride() : 0; }
  [[nodiscard]] size_t PackedValueOffset() const { return has_values ? RowStride() : 0; }
  // Returns the bytes of a key and its value.
  [[nodiscard]] size_t RowBytes() const { return (has_values ? 2 : 1) * RowStride(); }
  [[nodiscard]] size_t PageBytes() const { return kRowsPerPage * RowBytes(); }
};

// ChosenRows is a subset of a view's rows, with chunk boundaries.
struct ChosenRows {
  struct Start {
    uint32_t range;
    uint32_t row;  // of the view, in that range
  };
  std::span<const RowRange> ranges;  // ascending, apart from each other, none empty
  std::span<const Start> chunks;     // [chunks], from CutIntoChunks()
  size_t num_rows = 0;               // in all ranges
};

// Fills `chunks` with the beginning of every chunk of the ranges' rows, and returns the number of
// these rows. Allocates nothing if `chunks` has capacity.
size_t CutIntoChunks(std::span<const RowRange> ranges, std::vector<ChosenRows::Start>* chunks);

// RowsView names the visible rows of one (layer, kv head), in order of position. REQUIRES: all
// spans outlive the step.
struct RowsView {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned; null: no visible row
  std::span<const Slot> slots;              // [rows]
  std::span<const Position> positions;      // [rows], ascending
  std::span<const Position> last_visible;   // [rows], or empty: visible for ever
  // window hides, in tokens, a row at position p from queries at p + window and later; 0: from
  // none.
  int window = 0;
  ChosenRows chosen;  // in decode; without a range: all rows

  // Returns the last query position that sees row `row`.
  [[nodiscard]] Position LastVisible(size_t row) const {
    const Position last = last_visible.empty() ? kVisibleForEver : last_visible[row];
    return window == 0 ? last : std::min(last, positions[row] + (window - 1));
  }

  // Returns the number of rows that are read.
  [[nodiscard]] size_t size() const {
    return chosen.ranges.empty() ? slots.size() : chosen.num_rows;
  }
};

// CompressedFormat is the format of a page of T2, which holds whole rows: row r begins at page + r
// * RowStride(). Only T2's kernels know the format of a row (src/attention/compressed.h).
struct CompressedFormat {
  CompressedType type = CompressedType::kInt8;
  int head_dim = 0;
  bool has_values = true;  // false: values are parts of keys, see PageFormat
  // in_ggml_blocks says that records are rows of ggml's quantized types
  // (src/attention/ggml_records.h), which ggml's backends read without ebb's kernels. The CPU's
  // attention does not read them.
  bool in_ggml_blocks = false;

  // Returns the format of T2 in a cache whose full rows have the format `full`.
  [[nodiscard]] static CompressedFormat Of(const PageFormat& full, CompressedType type) {
    return {.type = type, .head_dim = full.head_dim, .has_values = full.has_values};
  }
  [[nodiscard]] size_t RowStride() const;  // bytes of a key and a value; a multiple of 2
  [[nodiscard]] size_t PageBytes() const { return (kRowsPerPage * RowStride() + 63) / 64 * 64; }
  // Returns whether keys are stored relative to a centre that all rows of a stream share.
  [[nodiscard]] bool IsCentred() const { return type != CompressedType::kInt8Naive; }
};

// CompressedRows names the compressed rows of one (layer, kv head), in order of position.
struct CompressedRows {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned
  std::span<const Slot> slots;              // [num_rows]
  const float* key_centre = nullptr;        // [head_dim], as CompressRow() got it

  [[nodiscard]] size_t size() const { return slots.size(); }
};

}  // namespace ebb

#endif  // EBB_ATTENTION_ROWS_H_
