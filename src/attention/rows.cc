#include "src/attention/rows.h"

#include <algorithm>

#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

// Rows located together where their slots follow one another in a page, as those of a cache that
// lost no row do.
constexpr uint32_t kRunRows = 16;
static_assert(kRowsPerPage % kRunRows == 0);

bool IsRun(const uint32_t* slots) {
  uint32_t differs = 0;
  for (uint32_t r = 0; r < kRunRows; ++r) differs |= slots[r] ^ (slots[0] + r);
  return differs == 0 && slots[0] % kRowsPerPage <= kRowsPerPage - kRunRows;
}

void Locate(const std::byte* const* pages, const uint32_t* slots, uint32_t num_rows, size_t stride,
            std::span<const std::byte*, kChunkRows> rows) {
  const auto row_of = [&](uint32_t slot) {
    return pages[slot / kRowsPerPage] + slot % kRowsPerPage * stride;
  };
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
  std::fill(rows.begin() + num_rows, rows.end(), rows[num_rows - 1]);
}

}  // namespace

void LocateKeys(const RowsView& rows, const PageFormat& format, uint32_t begin, uint32_t end,
                std::span<const std::byte*, kChunkRows> keys) {
  Locate(rows.pages, rows.slots.data() + begin, end - begin, format.RowStride(), keys);
}

void LocateCompressed(const CompressedRows& rows, const CompressedFormat& format, uint32_t begin,
                      uint32_t end, std::span<const std::byte*, kChunkRows> addresses) {
  Locate(rows.pages, rows.slots.data() + begin, end - begin, format.RowStride(), addresses);
}

}  // namespace ebb
