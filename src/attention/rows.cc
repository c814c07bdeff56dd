#include "src/attention/rows.h"

#include <algorithm>
#include <cassert>

#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

// kRunRows rows are located at once if their slots are consecutive in a page, which holds for a
// cache that has evicted no row.
constexpr uint32_t kRunRows = 16;
static_assert(kRowsPerPage % kRunRows == 0);

bool IsRun(const Slot* slots) {
  uint32_t differs = 0;
  for (uint32_t r = 0; r < kRunRows; ++r) differs |= slots[r].value ^ (slots[0].value + r);
  return differs == 0 && slots[0].row() <= kRowsPerPage - kRunRows;
}

void Locate(const std::byte* const* pages, const Slot* slots, uint32_t num_rows, size_t stride,
            const std::byte** rows) {
  const auto row_of = [&](Slot slot) { return pages[slot.page()] + slot.row() * stride; };
  uint32_t r = 0;
  while (r < num_rows) {
    if (r + kRunRows <= num_rows && IsRun(slots + r)) {
      const std::byte* first = row_of(slots[r]);
      for (uint32_t i = 0; i < kRunRows; ++i) rows[r + i] = first + i * stride;
      r += kRunRows;
    } else {
      const uint32_t block_end = std::min(r + kRunRows, num_rows);
      for (; r < block_end; ++r) rows[r] = row_of(slots[r]);
    }
  }
}

void FillUp(std::span<const std::byte*, kChunkRows> rows, uint32_t num_rows) {
  std::fill(rows.begin() + num_rows, rows.end(), rows[num_rows - 1]);
}

// Writes the addresses of `num_rows` chosen rows, from the chunk that begins with row `begin` on.
void LocateChosen(const RowsView& rows, uint32_t begin, uint32_t num_rows, size_t stride,
                  const std::byte** keys) {
  assert(begin % kChunkRows == 0);
  const auto [range, row] = rows.chosen.chunks[begin / kChunkRows];
  const RowRange* of = &rows.chosen.ranges[range];
  for (size_t first = row;; first = (++of)->begin) {
    const uint32_t num = std::min<size_t>(of->end - first, num_rows);
    Locate(rows.pages, rows.slots.data() + first, num, stride, keys);
    keys += num;
    num_rows -= num;
    if (num_rows == 0) return;
  }
}

}  // namespace

size_t CutIntoChunks(std::span<const RowRange> ranges, std::vector<ChosenRows::Start>* chunks) {
  chunks->clear();
  size_t num_rows = 0;
  for (const RowRange& range : ranges) {
    const size_t next = num_rows + range.end - range.begin;
    for (size_t begin = chunks->size() * kChunkRows; begin < next; begin += kChunkRows) {
      chunks->push_back({.range = static_cast<uint32_t>(&range - ranges.data()),
                         .row = static_cast<uint32_t>(range.begin + begin - num_rows)});
    }
    num_rows = next;
  }
  return num_rows;
}

void LocateKeys(const RowsView& rows, const PageFormat& format, uint32_t begin, uint32_t end,
                std::span<const std::byte*, kChunkRows> keys) {
  const size_t stride = format.RowStride();
  if (rows.chosen.ranges.empty()) {
    Locate(rows.pages, rows.slots.data() + begin, end - begin, stride, keys.data());
  } else {
    LocateChosen(rows, begin, end - begin, stride, keys.data());
  }
  FillUp(keys, end - begin);
}

void LocateCompressed(const CompressedRows& rows, const CompressedFormat& format, uint32_t begin,
                      uint32_t end, std::span<const std::byte*, kChunkRows> addresses) {
  Locate(rows.pages, rows.slots.data() + begin, end - begin, format.RowStride(), addresses.data());
  FillUp(addresses, end - begin);
}

}  // namespace ebb
