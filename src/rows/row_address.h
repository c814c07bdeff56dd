// The address of a row within its page.
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
  std::byte* value = nullptr;  // [format.RowStride()]; the key, where a format has no values
};

// Returns the address of the row in slot.row() of `page`; `slot` may be a slot of the page or of
// its stream.
[[nodiscard]] inline RowAddress RowOfPage(std::byte* page, Slot slot, const PageFormat& format) {
  std::byte* key = page + slot.row() * format.RowStride();
  return {.key = key, .value = key + format.ValueOffset()};
}

inline void CopyRow(const RowAddress& from, const RowAddress& to, const PageFormat& format) {
  std::memcpy(to.key, from.key, format.RowStride());
  if (format.has_values) std::memcpy(to.value, from.value, format.RowStride());
}

// Returns the address of a row of a stream whose pages, in `arena`, are `pages`.
[[nodiscard]] inline RowAddress AddressOf(Slot slot, std::span<const PageRef> pages,
                                          const Arena& arena, const PageFormat& format) {
  return RowOfPage(arena.Address(pages[slot.page()].id()), slot, format);
}

// Copies rows within streams: moves[i] within the stream whose pages are pages[i].
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
