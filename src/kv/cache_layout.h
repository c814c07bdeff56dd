// Describes the layout of a cache's rows: the streams and groups of a model at a granularity, the
// formats of rows, and the sliding windows of layers. It never changes.
#ifndef EBB_KV_CACHE_LAYOUT_H_
#define EBB_KV_CACHE_LAYOUT_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/base/attention_layout.h"

namespace ebb {

class CacheLayout : public AttentionLayout {
 public:
  // Makes a layout. full: format of T0 and T1. compressed: format of T2, whose pages have
  // `compressed_page_bytes` bytes.
  CacheLayout(const ModelShape& shape, Granularity granularity, const PageFormat& full,
              const CompressedFormat& compressed, size_t compressed_page_bytes);

  [[nodiscard]] Granularity granularity() const { return granularity_; }
  [[nodiscard]] const PageFormat& format() const { return format_; }
  [[nodiscard]] const CompressedFormat& compressed_format() const { return compressed_; }
  using AttentionLayout::GroupOf;
  [[nodiscard]] int GroupOf(int layer, int kv_head) const {
    return GroupOf(StreamOf(layer, kv_head));
  }
  struct StreamId {
    int layer, kv_head;
  };
  // Returns the streams of a group, layer by layer and head by head.
  [[nodiscard]] std::vector<StreamId> StreamsOf(int group) const;
  using AttentionLayout::NumStreamsOf;
  [[nodiscard]] size_t NumStreamsOf(std::span<const int> groups) const;
  // Returns the group's sliding window in tokens; 0: none. If `next` is the position of the next
  // query, no further query sees the rows at positions up to next - window, so they may be removed.
  [[nodiscard]] int WindowOf(int group) const { return windows_[group]; }
  // Returns the bytes of a key and a value in T0 or T1.
  [[nodiscard]] size_t RowBytes() const { return format_.RowBytes(); }
  [[nodiscard]] size_t RowBytes(Tier tier) const {
    return tier == Tier::kT2 ? compressed_.RowStride() : RowBytes();
  }
  [[nodiscard]] size_t PageBytes(Tier tier) const {
    return tier == Tier::kT2 ? compressed_page_bytes_ : format_.PageBytes();
  }

 private:
  Granularity granularity_;
  PageFormat format_;
  CompressedFormat compressed_;
  size_t compressed_page_bytes_;
  std::vector<int> windows_;  // [groups]
};

}  // namespace ebb

#endif  // EBB_KV_CACHE_LAYOUT_H_
