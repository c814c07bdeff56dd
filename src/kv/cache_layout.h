// The layout of a cache's rows: streams and groups of a model at a granularity, the formats of
// rows, and the windows of layers. Immutable.
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
  // full: of T0 and T1. compressed: of T2, whose pages take `compressed_page_bytes`.
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
  // Layer by layer and head by head.
  [[nodiscard]] std::vector<StreamId> StreamsOf(int group) const;
  using AttentionLayout::NumStreamsOf;
  [[nodiscard]] size_t NumStreamsOf(std::span<const int> groups) const;
  // In tokens. Rows at positions up to next - window, next being the next query's position, are
  // seen no more, and may be removed. 0: no window.
  [[nodiscard]] int WindowOf(int group) const { return windows_[group]; }
  // Bytes of a key and a value in T0 or T1.
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
