// The cache as attention sees it: for one (layer, kv head), pages that hold rows in any order and
// an index list that names the visible ones in order of position. Attention never knows which tier
// or sequence a page belongs to.
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

// The last-visible position of a row that nothing hides.
inline constexpr Position kVisibleForEver = std::numeric_limits<Position>::max();

// A page holds the keys of its rows, then their values, each row contiguous:
//   key   of row r: page + r * row_stride
//   value of row r: page + value_offset + r * row_stride
// Without values it holds keys alone, and value_offset is 0: attention sums whole keys, and its
// caller reads the part of the sum that is of values.
struct PageFormat {
  RowType type = RowType::kF16;
  int head_dim = 0;
  bool has_values = true;  // see ModelShape

  [[nodiscard]] static PageFormat Of(const ModelShape& shape, RowType type) {
    return {.type = type, .head_dim = shape.head_dim, .has_values = shape.has_values};
  }
  [[nodiscard]] size_t RowStride() const { return head_dim * RowTypeBytes(type); }
  // From a key to its value: in a page, and where a row is packed.
  [[nodiscard]] size_t ValueOffset() const { return has_values ? kRowsPerPage * RowStride() : 0; }
  [[nodiscard]] size_t PackedValueOffset() const { return has_values ? RowStride() : 0; }
  // The bytes of a key and its value.
  [[nodiscard]] size_t RowBytes() const { return (has_values ? 2 : 1) * RowStride(); }
  [[nodiscard]] size_t PageBytes() const { return kRowsPerPage * RowBytes(); }
};

// A subset of a view's rows, with chunk boundaries.
struct ChosenRows {
  struct Start {
    uint32_t range;
    uint32_t row;  // of the view, in that range
  };
  std::span<const RowRange> ranges;  // ascending, apart from each other, none empty
  std::span<const Start> chunks;     // [chunks], from CutIntoChunks()
  size_t num_rows = 0;               // in all ranges
};

// Puts where every chunk of the ranges' rows begins into `chunks`, and returns how many rows there
// are. Allocates nothing where `chunks` has room.
size_t CutIntoChunks(std::span<const RowRange> ranges, std::vector<ChosenRows::Start>* chunks);

// The visible rows of one (layer, kv head), in order of position. All spans outlive the step.
struct RowsView {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned; null: no visible row
  std::span<const Slot> slots;              // [rows]
  std::span<const Position> positions;      // [rows], ascending
  std::span<const Position> last_visible;   // [rows], or empty: visible for ever
  // In tokens: a row at position p is hidden from queries at p + window and later; 0: from none.
  int window = 0;
  ChosenRows chosen;  // in decode; without a range: all rows

  // The last position from which row `row` is seen.
  [[nodiscard]] Position LastVisible(size_t row) const {
    const Position last = last_visible.empty() ? kVisibleForEver : last_visible[row];
    return window == 0 ? last : std::min(last, positions[row] + (window - 1));
  }

  // The number of rows that are read.
  [[nodiscard]] size_t size() const {
    return chosen.ranges.empty() ? slots.size() : chosen.num_rows;
  }
};

// A page of T2 holds whole rows, one after another: row r begins at page + r * RowStride(). Only
// its kernels know the format of a row (src/attention/compressed.h).
struct CompressedFormat {
  CompressedType type = CompressedType::kInt8;
  int head_dim = 0;
  bool has_values = true;  // false: values are parts of keys, see PageFormat
  // Records are rows of ggml's quantised types (src/attention/ggml_records.h), which its backends
  // read without kernels of ebb's. The CPU's attention does not read them.
  bool in_ggml_blocks = false;

  // Returns the format of T2 in a cache whose full rows have the format `full`.
  [[nodiscard]] static CompressedFormat Of(const PageFormat& full, CompressedType type) {
    return {.type = type, .head_dim = full.head_dim, .has_values = full.has_values};
  }
  [[nodiscard]] size_t RowStride() const;  // bytes of a key and a value; a multiple of 2
  [[nodiscard]] size_t PageBytes() const { return (kRowsPerPage * RowStride() + 63) / 64 * 64; }
  // Whether keys are stored relative to a centre that all rows of a stream share.
  [[nodiscard]] bool IsCentred() const { return type != CompressedType::kInt8Naive; }
};

// The compressed rows of one (layer, kv head), in order of position.
struct CompressedRows {
  const std::byte* const* pages = nullptr;  // [num_pages], 64-byte aligned
  std::span<const Slot> slots;              // [num_rows]
  const float* key_centre = nullptr;        // [head_dim], as CompressRow() got it

  [[nodiscard]] size_t size() const { return slots.size(); }
};

}  // namespace ebb

#endif  // EBB_ATTENTION_ROWS_H_
