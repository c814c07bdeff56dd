// How many rows of each stream a cap in bytes holds, and back: counted alike by what places rows
// and by what foretells it.
#ifndef EBB_BASE_CAP_ARITHMETIC_H_
#define EBB_BASE_CAP_ARITHMETIC_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/base/page_units.h"

namespace ebb {

enum class CapOf { kMemory, kFile };

// The pages of all streams, one of each layer and kv head. An even share of the bytes is a share of
// the groups' streams too, so the number of groups cancels out. A segment of a file belongs to one
// layer: there, each layer counts as if it had the most kv heads of any.
struct CapArithmetic {
  uint64_t page_bytes = 0;
  size_t num_layers = 0;
  size_t num_streams = 0;
  size_t num_kv_heads = 0;  // the most of any layer

  [[nodiscard]] uint64_t PagesInExtent() const {
    return std::max<uint64_t>(kExtentBytes / page_bytes, 1);
  }

  // The rows of each stream that full pages hold.
  [[nodiscard]] size_t RowsIn(CapOf cap, uint64_t bytes) const {
    uint64_t pages = bytes / kExtentBytes * PagesInExtent() / num_streams;
    if (cap == CapOf::kFile) {
      const uint64_t segments = bytes / (page_bytes * kPagesPerSegment) / num_layers;
      pages = segments * kPagesPerSegment / num_kv_heads;
    }
    return static_cast<size_t>(pages) * kRowsPerPage;
  }

  // The least bytes that hold so many pages of each stream.
  [[nodiscard]] uint64_t BytesFor(CapOf cap, size_t num_pages) const {
    if (cap == CapOf::kMemory) {
      const uint64_t pages = uint64_t{num_pages} * num_streams;
      return (pages + PagesInExtent() - 1) / PagesInExtent() * kExtentBytes;
    }
    const size_t segments = (num_pages * num_kv_heads + kPagesPerSegment - 1) / kPagesPerSegment;
    return page_bytes * kPagesPerSegment * segments * num_layers;
  }
};

}  // namespace ebb

#endif  // EBB_BASE_CAP_ARITHMETIC_H_
