// The units in which rows are kept, wherever they are.
#ifndef EBB_BASE_PAGE_UNITS_H_
#define EBB_BASE_PAGE_UNITS_H_

#include <compare>
#include <cstddef>
#include <cstdint>

namespace ebb {

inline constexpr int kRowsPerPage = 64;
// Counts the pages that hold so many rows.
constexpr size_t PagesFor(size_t num_rows) { return (num_rows + kRowsPerPage - 1) / kRowsPerPage; }

// The place of a row among the pages of its stream. A row has three names, which are never mixed
// up: its position in the sequence, its index in a list of rows in order of position, and its slot.
struct Slot {
  uint32_t value = 0;

  constexpr Slot() = default;
  constexpr explicit Slot(uint32_t v) : value(v) {}
  constexpr Slot(uint32_t page, uint32_t row) : value(page * kRowsPerPage + row) {}
  [[nodiscard]] constexpr uint32_t page() const { return value / kRowsPerPage; }
  [[nodiscard]] constexpr uint32_t row() const { return value % kRowsPerPage; }  // of the page
  // Slots of a page follow one another, and pages do.
  constexpr Slot& operator++() {
    ++value;
    return *this;
  }
  friend constexpr auto operator<=>(Slot a, Slot b) = default;
};
// Memory is mapped, and given back, by extents of whole pages.
inline constexpr size_t kExtentBytes = size_t{2} << 20;
// The buffer of a device's rows grows by at least so much, and does not shrink below it.
inline constexpr size_t kLeastDeviceExtents = 8;
// A file grows by segments, each of which belongs to one layer.
inline constexpr uint32_t kPagesPerSegment = 64;

}  // namespace ebb

#endif  // EBB_BASE_PAGE_UNITS_H_
