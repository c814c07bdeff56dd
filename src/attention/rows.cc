#include "src/attention/rows.h"

#include "src/attention/attention.h"

namespace ebb {

void LocateKeys(const RowsView& rows, const PageFormat& format, uint32_t begin, uint32_t end,
                std::span<const std::byte*, kChunkRows> keys) {
  const size_t stride = format.RowStride();
  const uint32_t num_rows = end - begin;
  for (uint32_t r = 0; r < num_rows; ++r) {
    const uint32_t slot = rows.slots[begin + r];
    keys[r] = rows.pages[slot / kRowsPerPage] + slot % kRowsPerPage * stride;
  }
  for (uint32_t r = num_rows; r < kChunkRows; ++r) keys[r] = keys[num_rows - 1];
}

}  // namespace ebb
