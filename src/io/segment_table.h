// Which pages of a file are owned. Pages lie in segments of 64; a segment that is not empty belongs
// to one layer, so that reading a layer is a few long reads. A segment may have space on the disk
// (be reserved) without belonging to anybody.
//
// Plain searches over all segments: a gigabyte of pages of 16 KiB is a thousand of them.
#ifndef EBB_IO_SEGMENT_TABLE_H_
#define EBB_IO_SEGMENT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/page_units.h"

namespace ebb {

class SegmentTable {
 public:
  // Empty segments that `layer` needs for `num_pages` more pages: those that are reserved already
  // first, then the lowest, then new ones. Changes nothing.
  [[nodiscard]] std::vector<uint32_t> SegmentsFor(int layer, size_t num_pages) const;
  // Makes room for records of segments up to `segment`. May throw std::bad_alloc.
  void Grow(uint32_t segment);
  void SetReserved(uint32_t segment);
  // REQUIRES: empty.
  void SetReleased(uint32_t segment);
  [[nodiscard]] bool IsReserved(uint32_t segment) const;
  // REQUIRES: empty and reserved.
  void Give(uint32_t segment, int layer);
  // Appends the layer's lowest `num_pages` holes, which are owned from now on.
  // REQUIRES: there are as many, and `pages` has capacity for them.
  void Take(int layer, size_t num_pages, std::vector<uint32_t>* pages);
  // The segment, when this was its last page; it has no owner then. REQUIRES: owned.
  std::optional<uint32_t> Free(uint32_t page);

  [[nodiscard]] bool IsOwned(uint32_t page) const;
  [[nodiscard]] size_t num_segments() const { return segments_.size(); }  // that have records
  [[nodiscard]] size_t num_pages() const { return num_pages_; }
  [[nodiscard]] size_t num_reserved() const { return num_reserved_; }
  [[nodiscard]] size_t table_bytes() const { return segments_.capacity() * sizeof(Segment); }

 private:
  static constexpr int kNobody = -1;
  static constexpr int kNotReserved = -2;

  struct Segment {
    uint64_t owned = 0;  // bit p: page p of the segment is owned
    int layer = kNotReserved;
  };

  std::vector<Segment> segments_;
  size_t num_pages_ = 0;     // owned
  size_t num_reserved_ = 0;  // segments
};

}  // namespace ebb

#endif  // EBB_IO_SEGMENT_TABLE_H_
