// RowAddress is the address of a row's key and value within a page.
#ifndef EBB_ROWS_ROW_ADDRESS_H_
#define EBB_ROWS_ROW_ADDRESS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "src/attention/rows.h"
#include "src/rows/arena.h"
#include "src/rows/page_ref.h"

namespace ebb {

struct RowAddress {
  std::byte* key = nullptr;    // [format.RowStride()]
  std::byte* value = nullptr;  // [format.RowStride()]; equals `key` if rows have no values
};

// Returns the address of the row at slot.row() in `page`, the address of a page. `slot` may count
// slots of the page or of its stream.
[[nodiscard]] inline RowAddress RowOfPage(std::byte* page, Slot slot, const PageFormat& format) {
  std::byte* key = page + slot.row() * format.RowStride();
  return {.key = key, .value = key + format.ValueOffset()};
}

inline void CopyRow(const RowAddress& from, const RowAddress& to, const PageFormat& format) {
  std::memcpy(to.key, from.key, format.RowStride());
  if (format.has_values) std::memcpy(to.value, from.value, format.RowStride());
}

// Returns the address of the row at `slot` of the stream whose pages are `pages`, ids in `arena`.
[[nodiscard]] inline RowAddress AddressOf(Slot slot, std::span<const PageRef> pages,
                                          const Arena& arena, const PageFormat& format) {
  return RowOfPage(arena.Address(pages[slot.page()].id()), slot, format);
}

// Copies rows to other slots of their stream: moves[i] are moves in the stream whose pages are
// pages[i].
inline void MoveInArena(std::span<const std::span<const SlotMove>> moves,
                        std::span<const std::span<const PageRef>> pages, const Arena& arena,
                        const PageFormat& format) {
  for (size_t i = 0; i < moves.size(); ++i) {
    for (const SlotMove& move : moves[i]) {
      CopyRow(AddressOf(move.from, pages[i], arena, format),
              AddressOf(move.to, pages[i], arena, format), format);
    }
  }
}

}  // namespace ebb

#endif  // EBB_ROWS_ROW_ADDRESS_H_
