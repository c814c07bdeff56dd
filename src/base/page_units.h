// Defines the units in which rows are stored in every tier.
#ifndef EBB_BASE_PAGE_UNITS_H_
#define EBB_BASE_PAGE_UNITS_H_

#include <compare>
#include <cstddef>
#include <cstdint>

namespace ebb {

inline constexpr int kRowsPerPage = 64;
// Returns the number of pages that `num_rows` rows take.
constexpr size_t PagesFor(size_t num_rows) { return (num_rows + kRowsPerPage - 1) / kRowsPerPage; }

// Slot locates a row in the pages of its stream: row `value % 64` of page `value / 64`. A row has
// three different numbers: its position in the sequence, its index in a list of rows in order of
// position, and its slot.
struct Slot {
  uint32_t value = 0;

  constexpr Slot() = default;
  constexpr explicit Slot(uint32_t v) : value(v) {}
  constexpr Slot(uint32_t page, uint32_t row) : value(page * kRowsPerPage + row) {}
  [[nodiscard]] constexpr uint32_t page() const { return value / kRowsPerPage; }
  [[nodiscard]] constexpr uint32_t row() const { return value % kRowsPerPage; }  // in the page
  // Advances to the next slot, which is in the next page after the last slot of a page.
  constexpr Slot& operator++() {
    ++value;
    return *this;
  }
  friend constexpr auto operator<=>(Slot a, Slot b) = default;
};
// kExtentBytes is the unit in which arenas map and unmap memory; an extent holds whole pages.
inline constexpr size_t kExtentBytes = size_t{2} << 20;
// kLeastDeviceExtents is the least growth and the least size of the buffer for a device's rows.
inline constexpr size_t kLeastDeviceExtents = 8;
// kPagesPerSegment is the number of pages in a segment, the unit in which T1's file grows. A
// segment belongs to one layer.
inline constexpr uint32_t kPagesPerSegment = 64;

}  // namespace ebb

#endif  // EBB_BASE_PAGE_UNITS_H_
