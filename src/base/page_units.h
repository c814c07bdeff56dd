// The units in which rows are kept, wherever they are.
#ifndef EBB_BASE_PAGE_UNITS_H_
#define EBB_BASE_PAGE_UNITS_H_

#include <cstddef>
#include <cstdint>

namespace ebb {

// Rows in a page. A slot s lies in page s / kRowsPerPage at row s % kRowsPerPage.
inline constexpr int kRowsPerPage = 64;
// Memory is mapped, and given back, by extents of whole pages.
inline constexpr size_t kExtentBytes = size_t{2} << 20;
// A file grows by segments, each of which belongs to one layer.
inline constexpr uint32_t kPagesPerSegment = 64;

}  // namespace ebb

#endif  // EBB_BASE_PAGE_UNITS_H_
