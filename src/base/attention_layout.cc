#include "src/base/attention_layout.h"

namespace ebb {

AttentionLayout::AttentionLayout(const ModelShape& shape, Granularity granularity)
    : num_q_heads_(shape.num_q_heads),
      head_dim_(shape.head_dim),
      granularity_(granularity),
      first_stream_(1, 0),
      first_of_group_(1, 0) {
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    layer_of_stream_.resize(layer_of_stream_.size() + shape.NumKvHeads(layer), layer);
    first_stream_.push_back(num_streams());
  }
  for (int stream = 0; stream < num_streams(); ++stream) {
    const bool begins_layer = KvHeadOf(stream) == 0;
    if (stream > 0 && (granularity == Granularity::kHead ||
                       (granularity == Granularity::kLayer && begins_layer))) {
      first_of_group_.push_back(stream);
    }
    group_of_stream_.push_back(static_cast<int>(first_of_group_.size()) - 1);
  }
  first_of_group_.push_back(num_streams());
}

int AttentionLayout::QueryHeadsOf(int group) const {
  if (granularity_ != Granularity::kHead) return num_q_heads_;
  return QueryHeadsPerKvHead(LayerOf(FirstStreamOf(group)));
}

int AttentionLayout::AllQueryHeadsOf(int group) const {
  const int layers = granularity_ == Granularity::kToken ? num_layers() : 1;
  return layers * QueryHeadsOf(group);
}

}  // namespace ebb
