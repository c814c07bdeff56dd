#include "src/kv/cache_layout.h"

namespace ebb {

// Sets the sliding window of each group: that of its layer, or none if a group has several layers,
// since rows would have to be removed layer by layer.
CacheLayout::CacheLayout(const ModelShape& shape, Granularity granularity, const PageFormat& full,
                         const CompressedFormat& compressed, size_t compressed_page_bytes)
    : AttentionLayout(shape, granularity),
      granularity_(granularity),
      format_(full),
      compressed_(compressed),
      compressed_page_bytes_(compressed_page_bytes) {
  const bool has_one_layer = granularity != Granularity::kToken || shape.num_layers == 1;
  for (int group = 0; group < num_groups(); ++group) {
    windows_.push_back(has_one_layer ? shape.Window(LayerOf(FirstStreamOf(group))) : 0);
  }
}

std::vector<CacheLayout::StreamId> CacheLayout::StreamsOf(int group) const {
  const int first = FirstStreamOf(group);
  std::vector<StreamId> streams;
  for (int i = first; i < first + NumStreamsOf(group); ++i) {
    streams.push_back({LayerOf(i), KvHeadOf(i)});
  }
  return streams;
}

size_t CacheLayout::NumStreamsOf(std::span<const int> groups) const {
  size_t num_streams = 0;
  for (const int group : groups) num_streams += NumStreamsOf(group);
  return num_streams;
}

}  // namespace ebb
