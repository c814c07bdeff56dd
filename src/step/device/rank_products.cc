#include "src/step/device/rank_products.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "src/base/sanitizers.h"

namespace ebb {

RankRoom RankRoom::Of(size_t num_keys, size_t num_pages) {
  constexpr size_t kManyPages = 256, kStep = 16;
  const size_t step = num_pages <= kManyPages ? kStep : 4 * kStep;
  return {.num_keys = static_cast<int>(num_keys),
          .num_pages = static_cast<int>((num_pages + step - 1) / step * step)};
}

RankMirror::RankMirror(int num_streams, int head_dim, const RankRoom& room)
    : head_dim_(head_dim), room_(room), vectors_(num_streams * StreamSize()) {}

void RankMirror::FindChanged(const RankVectors& from, int group) {
  keys_.clear();
  pages_.clear();
  const size_t num_pages = from.NumRankPages(group);
  if (num_pages == 0) return;  // products with pages are not used
  assert(num_pages <= static_cast<size_t>(room_.num_pages));
  uint64_t* const known = versions_.data() + group * NumVersions();
  for (int key = 0; key < room_.num_keys; ++key) {
    const uint64_t version = from.RankKeyVersion(group, key);
    if (std::exchange(known[key], version) != version) keys_.push_back(key);
  }
  for (size_t page = 0; page < num_pages; ++page) {
    const uint64_t version = from.RankPageVersion(group, page);
    uint64_t& known_page = known[room_.num_keys + page];
    if (std::exchange(known_page, version) != version) pages_.push_back(page);
  }
}

bool RankMirror::Update(const RankVectors& from, const CacheLayout& layout,
                        std::vector<Change>* changes) {
  const bool is_new = versions_.empty();
  versions_.resize(layout.num_groups() * NumVersions());
  const auto vector_of = [&](size_t stream, size_t number) {
    return std::span(vectors_).subspan(stream * StreamSize() + number * head_dim_, head_dim_);
  };
  changes->clear();
  size_t num_vectors = 0;
  for (int group = 0; group < layout.num_groups(); ++group) {
    FindChanged(from, group);
    const size_t first = layout.FirstStreamOf(group), num_streams = layout.NumStreamsOf(group);
    const size_t first_mean = room_.num_keys, first_variance = first_mean + room_.num_pages;
    for (size_t stream = first; stream < first + num_streams; ++stream) {
      const auto id = static_cast<int>(stream);
      for (const size_t key : keys_) from.CopyRankKey(id, key, vector_of(stream, key));
      for (const size_t page : pages_) {
        from.CopyRankPage(id, page, vector_of(stream, first_mean + page),
                          vector_of(stream, first_variance + page));
      }
    }
    num_vectors += (keys_.size() + 2 * pages_.size()) * num_streams;
    const auto change = [&](size_t number) {
      changes->push_back({.offset = first * StreamSize() + number * head_dim_,
                          .size = head_dim_,
                          .num_streams = num_streams});
    };
    for (const size_t key : keys_) change(key);
    for (const size_t page : pages_) {
      change(first_mean + page);
      change(first_variance + page);
    }
  }
  // Joins the changes of the same vector in consecutive groups into one copy.
  std::ranges::sort(*changes, {}, [&](const Change& change) {
    return std::pair(change.offset % StreamSize(), change.offset);
  });
  const auto follows = [&](const Change& a, const Change& b) {
    return a.offset + a.num_streams * StreamSize() == b.offset;
  };
  size_t kept = 0;
  for (size_t i = 0; i < changes->size(); ++i) {
    const Change& next = (*changes)[i];
    if (kept > 0 && follows((*changes)[kept - 1], next)) {
      (*changes)[kept - 1].num_streams += next.num_streams;
    } else {
      (*changes)[kept++] = next;
    }
  }
  changes->resize(kept);
  constexpr size_t kMostCopies = 256;
  const bool are_many = num_vectors * head_dim_ * 4 > vectors_.size() || kept > kMostCopies;
  if (!is_new && !are_many) return false;
  changes->clear();
  return true;
}

template <typename Which>
void RankStores::Drop(const Which& which) {
  std::erase_if(stores_, [&](const Used& used) {
    if (!which(used)) return false;
    forget_(used.store.get());
    return true;
  });
}

void RankStores::BeginStep() {
  for (Used& used : stores_) ++used.steps_ago;
  Drop([](const Used& used) { return used.steps_ago > kKept; });
}

std::shared_ptr<RankStore> RankStores::Find(uint64_t selector, const RankRoom& room) const {
  for (const Used& used : stores_) {
    if (used.store->selector == selector && used.store->room == room) return used.store;
  }
  return nullptr;
}

RankStore* RankStores::Use(ggml_backend_t backend, uint64_t selector, const RankRoom& room,
                           int num_streams, int head_dim) {
  for (Used& used : stores_) {
    if (used.store->selector != selector || used.store->room != room) continue;
    used.steps_ago = 0;
    return used.store.get();
  }
  Drop([&](const Used& used) { return used.store->selector == selector; });
  auto store = std::make_shared<RankStore>(RankStore{
      .selector = selector, .room = room, .mirror = RankMirror(num_streams, head_dim, room)});
  store->context.reset(
      ggml_init({.mem_size = ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  if (store->context == nullptr) return nullptr;
  store->vectors = ggml_new_tensor_3d(store->context.get(), GGML_TYPE_F16, head_dim,
                                      room.NumVectors(), num_streams);
  for (const bool tries_again : {true, false}) {
    store->buffer.reset(ggml_backend_alloc_ctx_tensors(store->context.get(), backend));
    if (store->buffer != nullptr) break;
    if (!tries_again) return nullptr;
    Drop([](const Used& used) { return used.steps_ago > 0; });
  }
  stores_.push_back({.store = store});
  return store.get();
}

void RankStores::ForgetVectors() {
  for (Used& used : stores_) used.store->mirror.Forget();
}

void RankStores::Leak() {
  for (Used& used : stores_) ebb::Leak(&used.store->buffer);
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
  for (ggml_tensor* product : {first, second}) ggml_prec_set_acc(product, GGML_PREC_F32);
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
