#include "src/attention/prefill.h"

#include <algorithm>

namespace ebb {

PrefillAttention::PrefillAttention(const AttentionKernel& kernel, const AttentionShape& shape)
    : kernel_(kernel),
      shape_(shape),
      tile_tokens_(kernel.query_tile(shape.QueryHeadsPerKvHead())) {}

void PrefillAttention::Reserve(int num_tokens, int num_threads) {
  scratch_floats_ =
      kernel_.prefill_scratch_floats(shape_.QueryHeadsPerKvHead(), shape_.format.head_dim);
  scratch_.resize(scratch_floats_ * num_threads);
  m_.resize(size_t(num_tokens) * shape_.num_q_heads);
  l_.resize(size_t(num_tokens) * shape_.num_q_heads);
}

void PrefillAttention::Plan(const PrefillQueries& queries) {
  queries_ = queries;
  num_tiles_ = static_cast<int>((queries.positions.size() + tile_tokens_ - 1) / tile_tokens_);
  finite_ = true;
  next_unit_ = 0;
  next_mass_unit_ = 0;
}

PrefillInput PrefillAttention::Tile(int kv_head, int tile) const {
  const int heads = shape_.QueryHeadsPerKvHead();
  const int head_dim = shape_.format.head_dim;
  const size_t first = size_t(tile) * tile_tokens_;
  const size_t dense = size_t(shape_.num_q_heads) * head_dim;
  const size_t stride = queries_.q_token_stride == 0 ? dense : queries_.q_token_stride;
  return {
      .format = shape_.format,
      .rows = &queries_.rows[kv_head],
      .q = queries_.q + first * stride + size_t(kv_head) * heads * head_dim,
      .q_token_stride = stride,
      .q_head_stride = size_t(head_dim),
      .positions = queries_.positions.data() + first,
      .num_queries =
          static_cast<int>(std::min<size_t>(tile_tokens_, queries_.positions.size() - first)),
      .num_heads = heads,
      .scale = shape_.scale,
  };
}

void PrefillAttention::Run(int thread) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const bool keep_states = !queries_.mass.per_query_head.empty();
  const int num_units = num_tiles_ * shape_.num_kv_heads;
  for (int unit = next_unit_++; unit < num_units; unit = next_unit_++) {
    // Late tiles see the most rows: they go first, so that threads end together.
    const int tile = num_tiles_ - 1 - unit / shape_.num_kv_heads;
    const int kv_head = unit % shape_.num_kv_heads;
    const PrefillInput in = Tile(kv_head, tile);
    const size_t first = size_t(tile) * tile_tokens_;
    const size_t state = (kv_head * queries_.positions.size() + first) * heads;
    const PrefillOutput out = {
        .o = queries_.out + (first * shape_.num_q_heads + kv_head * heads) * shape_.format.head_dim,
        .o_token_stride = size_t(shape_.num_q_heads) * shape_.format.head_dim,
        .m = keep_states ? m_.data() + state : nullptr,
        .l = keep_states ? l_.data() + state : nullptr,
        .scratch = std::span(scratch_).subspan(thread * scratch_floats_, scratch_floats_),
    };
    if (!kernel_.prefill(in, out)) finite_ = false;
  }
}

void PrefillAttention::Mass(int thread) {
  if (!finite_) {
    if (thread == 0 && queries_.mass.not_finite != nullptr) *queries_.mass.not_finite = true;
    return;
  }
  size_t max_rows = 0;
  for (const RowsView& rows : queries_.rows) max_rows = std::max(max_rows, rows.size());
  const int num_chunks = static_cast<int>((max_rows + kPrefillChunkRows - 1) / kPrefillChunkRows);
  const auto scratch = std::span(scratch_).subspan(thread * scratch_floats_, scratch_floats_);
  // All heads of a chunk go to one thread: their targets may be the same array.
  for (int chunk = next_mass_unit_++; chunk < num_chunks; chunk = next_mass_unit_++) {
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      const uint32_t begin = chunk * kPrefillChunkRows;
      if (begin < queries_.rows[h].size()) MassUnit(h, begin, scratch);
    }
  }
}

void PrefillAttention::MassUnit(int kv_head, uint32_t begin, std::span<float> scratch) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const uint32_t num_rows = static_cast<uint32_t>(queries_.rows[kv_head].size());
  for (int tile = 0; tile < num_tiles_; ++tile) {
    const size_t first = size_t(tile) * tile_tokens_;
    const size_t state = (kv_head * queries_.positions.size() + first) * heads;
    kernel_.prefill_mass({
        .tile = Tile(kv_head, tile),
        .begin = begin,
        .end = std::min(begin + kPrefillChunkRows, num_rows),
        .m = m_.data() + state,
        .l = l_.data() + state,
        .scratch = scratch,
        .mass = queries_.mass.per_query_head.data() + kv_head * heads,
    });
  }
}

}  // namespace ebb
