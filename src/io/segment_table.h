// SegmentTable records which pages of a file are owned. A segment is 64 consecutive pages. A
// segment with owned pages belongs to one layer, so that a layer is read by a few long reads. An
// empty segment belongs to no layer; it may keep its space on the disk (be reserved).
//
// All searches are linear over the segments: a gigabyte of pages of 16 KiB has only a thousand
// segments.
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
  // Returns the empty segments that `layer` needs for `num_pages` more pages: reserved ones first,
  // then the lowest, then new ones. Changes nothing.
  [[nodiscard]] std::vector<uint32_t> SegmentsFor(int layer, size_t num_pages) const;
  // Grows the table to hold records of segments up to `segment`. May throw std::bad_alloc.
  void Grow(uint32_t segment);
  void SetReserved(uint32_t segment);
  // Marks the segment as without space on the disk. REQUIRES: it is empty.
  void SetReleased(uint32_t segment);
  [[nodiscard]] bool IsReserved(uint32_t segment) const;
  // Assigns the segment to `layer`, so that Take() finds free pages for the layer in it. REQUIRES:
  // the segment is reserved and belongs to no layer.
  void Give(uint32_t segment, int layer);
  // Takes the layer's lowest `num_pages` free pages and appends them to `pages`. REQUIRES: the
  // layer has as many, and `pages` has capacity for them.
  void Take(int layer, size_t num_pages, std::vector<uint32_t>* pages);
  // Frees the page. Returns its segment if this was the segment's last page; the segment then
  // belongs to no layer. REQUIRES: the page is owned.
  std::optional<uint32_t> Free(uint32_t page);

  [[nodiscard]] bool IsOwned(uint32_t page) const;
  [[nodiscard]] size_t num_segments() const { return segments_.size(); }  // segments with records
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
  size_t num_pages_ = 0;     // owned pages
  size_t num_reserved_ = 0;  // reserved segments
};

}  // namespace ebb

#endif  // EBB_IO_SEGMENT_TABLE_H_
