// Invariant: a segment has owned pages if and only if it belongs to a layer.
#include "src/io/segment_table.h"

#include <bit>
#include <cassert>

namespace ebb {

std::vector<uint32_t> SegmentTable::SegmentsFor(int layer, size_t num_pages) const {
  size_t num_holes = 0;
  for (const Segment& segment : segments_) {
    if (segment.layer == layer) num_holes += kPagesPerSegment - std::popcount(segment.owned);
  }
  const size_t missing = num_pages > num_holes ? num_pages - num_holes : 0;
  const size_t num_needed = (missing + kPagesPerSegment - 1) / kPagesPerSegment;
  std::vector<uint32_t> found;
  for (const int state : {kNobody, kNotReserved}) {
    for (uint32_t s = 0; s < segments_.size() && found.size() < num_needed; ++s) {
      if (segments_[s].layer == state) found.push_back(s);
    }
  }
  for (auto s = static_cast<uint32_t>(segments_.size()); found.size() < num_needed; ++s) {
    found.push_back(s);
  }
  return found;
}

void SegmentTable::Grow(uint32_t segment) {
  if (segment >= segments_.size()) segments_.resize(segment + 1);
}

void SegmentTable::SetReserved(uint32_t segment) {
  assert(segments_[segment].layer == kNotReserved);
  segments_[segment].layer = kNobody;
  ++num_reserved_;
}

void SegmentTable::SetReleased(uint32_t segment) {
  assert(segments_[segment].layer == kNobody);
  segments_[segment].layer = kNotReserved;
  --num_reserved_;
}

bool SegmentTable::IsReserved(uint32_t segment) const {
  return segment < segments_.size() && segments_[segment].layer != kNotReserved;
}

void SegmentTable::Give(uint32_t segment, int layer) {
  assert(segments_[segment].layer == kNobody && layer >= 0);
  segments_[segment].layer = layer;
}

void SegmentTable::Take(int layer, size_t num_pages, std::vector<uint32_t>* pages) {
  for (uint32_t s = 0; s < segments_.size() && num_pages > 0; ++s) {
    Segment& segment = segments_[s];
    if (segment.layer != layer) continue;
    for (; num_pages > 0 && ~segment.owned != 0; --num_pages, ++num_pages_) {
      const auto hole = static_cast<uint32_t>(std::countr_one(segment.owned));
      segment.owned |= uint64_t{1} << hole;
      pages->push_back(s * kPagesPerSegment + hole);
    }
  }
  assert(num_pages == 0 && "the layer has fewer holes than pages were asked for");
}

std::optional<uint32_t> SegmentTable::Free(uint32_t page) {
  assert(IsOwned(page));
  const uint32_t s = page / kPagesPerSegment;
  Segment& segment = segments_[s];
  segment.owned &= ~(uint64_t{1} << page % kPagesPerSegment);
  --num_pages_;
  if (segment.owned != 0) return std::nullopt;
  segment.layer = kNobody;
  return s;
}

bool SegmentTable::IsOwned(uint32_t page) const {
  const uint32_t s = page / kPagesPerSegment;
  return s < segments_.size() && (segments_[s].owned >> page % kPagesPerSegment & 1) != 0;
}

}  // namespace ebb
