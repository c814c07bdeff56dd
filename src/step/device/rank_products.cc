#include "src/step/device/rank_products.h"

#include <algorithm>
#include <cassert>

namespace ebb {

RankMirror::RankMirror(int num_streams, int head_dim, const RankRoom& room)
    : head_dim_(head_dim), room_(room), vectors_(num_streams * StreamSize()) {}

bool RankMirror::Update(const RankVectors& from, const CacheLayout& layout,
                        std::vector<Change>* changes) {
  constexpr size_t kMostChanges = 16;  // copies of their own
  const bool is_new = versions_.empty();
  versions_.resize(layout.num_groups() * NumVersions());
  const auto vector_of = [&](size_t stream, size_t number) {
    return std::span(vectors_).subspan(stream * StreamSize() + number * head_dim_, head_dim_);
  };
  size_t num_changes = 0;
  const auto change = [&](int first, int num_streams, size_t number) {
    if (++num_changes > kMostChanges || is_new) return;
    changes->push_back({.offset = first * StreamSize() + number * head_dim_,
                        .size = head_dim_,
                        .num_streams = static_cast<size_t>(num_streams)});
  };
  for (int group = 0; group < layout.num_groups(); ++group) {
    uint64_t* const known = versions_.data() + group * NumVersions();
    const int first = layout.FirstStreamOf(group), num_streams = layout.NumStreamsOf(group);
    for (int key = 0; key < room_.num_keys; ++key) {
      const uint64_t version = from.RankKeyVersion(group, key);
      if (known[key] == version) continue;
      known[key] = version;
      for (int stream = first; stream < first + num_streams; ++stream) {
        from.CopyRankKey(stream, key, vector_of(stream, key));
      }
      change(first, num_streams, key);
    }
    const size_t num_pages = from.NumRankPages(group);
    assert(num_pages <= static_cast<size_t>(room_.num_pages));
    for (size_t page = 0; page < num_pages; ++page) {
      uint64_t& known_page = known[room_.num_keys + page];
      const uint64_t version = from.RankPageVersion(group, page);
      if (known_page == version) continue;
      known_page = version;
      const size_t mean = room_.num_keys + page, variance = mean + room_.num_pages;
      for (int stream = first; stream < first + num_streams; ++stream) {
        from.CopyRankPage(stream, page, vector_of(stream, mean), vector_of(stream, variance));
      }
      change(first, num_streams, mean);
      change(first, num_streams, variance);
    }
  }
  if (!is_new && num_changes <= kMostChanges) return false;
  changes->clear();
  return true;
}

void AddRankProducts(ggml_context* context, ggml_cgraph* graph, const RankRoom& room, float scale,
                     ggml_tensor* vectors, ggml_tensor* queries, ggml_tensor* products) {
  const int64_t head_dim = queries->ne[0], num_q = queries->ne[1], kv_heads = vectors->ne[2];
  const auto part = [&](int64_t first, int64_t count) {
    return ggml_view_3d(context, vectors, head_dim, count, kv_heads, vectors->nb[1], vectors->nb[2],
                        first * vectors->nb[1]);
  };
  const int64_t num_first = int64_t{room.num_keys} + room.num_pages;
  ggml_tensor* scaled = ggml_scale(context, ggml_cont(context, queries), scale);
  scaled = ggml_reshape_3d(context, scaled, head_dim, num_q / kv_heads, kv_heads);
  ggml_tensor* first = ggml_mul_mat(context, part(0, num_first), scaled);
  ggml_tensor* second =
      ggml_mul_mat(context, part(num_first, room.num_pages), ggml_mul(context, scaled, scaled));
  const auto keep = [&](ggml_tensor* from, int64_t begin) {
    ggml_build_forward_expand(graph,
                              ggml_cpy(context, from,
                                       ggml_view_1d(context, products, ggml_nelements(from),
                                                    static_cast<size_t>(begin) * sizeof(float))));
  };
  keep(first, 0);
  keep(second, num_first * num_q);
}

void TakeRankProducts(const RankRoom& room, std::span<const float> products, int num_q_heads,
                      int layer, int kv_head, int num_kv_heads, RankVectors* selector) {
  const size_t group = num_q_heads / num_kv_heads, first_query = kv_head * group;
  const size_t num_first = size_t(room.num_keys) + room.num_pages;
  const float* const first = products.data() + first_query * num_first;
  const float* const variances =
      products.data() + num_q_heads * num_first + first_query * room.num_pages;
  selector->SetRankProducts(layer, kv_head, group,
                            {.keys = first,
                             .means = first + room.num_keys,
                             .variances = variances,
                             .keys_stride = num_first,
                             .means_stride = num_first,
                             .variances_stride = static_cast<size_t>(room.num_pages)});
}

}  // namespace ebb
