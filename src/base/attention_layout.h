// AttentionLayout numbers the streams of a model, which are (layer, kv head) pairs, and divides
// them into groups at a granularity. Streams are numbered layer by layer and head by head; the
// streams of a group have consecutive numbers.
#ifndef EBB_BASE_ATTENTION_LAYOUT_H_
#define EBB_BASE_ATTENTION_LAYOUT_H_

#include <cassert>
#include <vector>

#include "ebb/types.h"

namespace ebb {

class AttentionLayout {
 public:
  AttentionLayout(const ModelShape& shape, Granularity granularity);

  [[nodiscard]] int num_layers() const { return static_cast<int>(first_stream_.size()) - 1; }
  [[nodiscard]] int num_streams() const { return static_cast<int>(layer_of_stream_.size()); }
  [[nodiscard]] int num_groups() const { return static_cast<int>(first_of_group_.size()) - 1; }
  [[nodiscard]] int num_q_heads() const { return num_q_heads_; }  // per layer, the same for all
  [[nodiscard]] int head_dim() const { return head_dim_; }

  [[nodiscard]] int NumKvHeads(int layer) const {
    return first_stream_[layer + 1] - first_stream_[layer];
  }
  [[nodiscard]] int QueryHeadsPerKvHead(int layer) const {
    return num_q_heads_ / NumKvHeads(layer);
  }
  [[nodiscard]] int StreamOf(int layer, int kv_head) const {
    assert(layer >= 0 && layer < num_layers() && kv_head >= 0 && kv_head < NumKvHeads(layer));
    return first_stream_[layer] + kv_head;
  }
  [[nodiscard]] int LayerOf(int stream) const { return layer_of_stream_[stream]; }
  [[nodiscard]] int KvHeadOf(int stream) const { return stream - first_stream_[LayerOf(stream)]; }

  [[nodiscard]] int GroupOf(int stream) const { return group_of_stream_[stream]; }
  [[nodiscard]] int FirstStreamOf(int group) const { return first_of_group_[group]; }
  [[nodiscard]] int NumStreamsOf(int group) const {
    return first_of_group_[group + 1] - first_of_group_[group];
  }
  // Return the number of query heads that share a group's streams: QueryHeadsOf() in one layer,
  // AllQueryHeadsOf() in all of the group's layers together.
  [[nodiscard]] int QueryHeadsOf(int group) const;
  [[nodiscard]] int AllQueryHeadsOf(int group) const;

 private:
  int num_q_heads_;
  int head_dim_;
  Granularity granularity_;
  std::vector<int> first_stream_;     // [layers + 1]: first stream of each layer
  std::vector<int> layer_of_stream_;  // [streams]
  std::vector<int> first_of_group_;   // [groups + 1]: first stream of each group
  std::vector<int> group_of_stream_;  // [streams]
};

}  // namespace ebb

#endif  // EBB_BASE_ATTENTION_LAYOUT_H_
