#include "src/step/device/rank_products.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "src/base/ggml_deleter.h"

namespace ebb::rank_products_test {
namespace {

constexpr int kHeadDim = 32, kLayers = 3, kKvHeads = 2, kQHeads = 6;

CacheLayout LayoutBy(Granularity granularity) {
  ModelShape shape;
  shape.num_layers = kLayers;
  shape.num_q_heads = kQHeads;
  shape.num_kv_heads = kKvHeads;
  shape.head_dim = kHeadDim;
  return CacheLayout(shape, granularity, PageFormat::Of(shape, RowType::kF16), {}, 0);
}

// Vectors is a selector's vectors, which a test can change.
class Vectors : public RankVectors {
 public:
  explicit Vectors(int num_groups, size_t num_keys) : pages_(num_groups), num_keys_(num_keys) {}

  uint64_t RankId() const override { return 1; }
  size_t NumRankKeys() const override { return num_keys_; }
  size_t NumRankPages(int group) const override { return pages_[group]; }
  uint64_t RankKeyVersion(int group, size_t key) const override {
    return VersionOf({group, 0, key});
  }
  uint64_t RankPageVersion(int group, size_t page) const override {
    return VersionOf({group, 1, page});
  }
  void CopyRankKey(int stream, size_t key, std::span<uint16_t> to) const override {
    Fill(stream, 0, key, to);
  }
  void CopyRankPage(int stream, size_t page, std::span<uint16_t> mean,
                    std::span<uint16_t> variance) const override {
    Fill(stream, 1, page, mean);
    Fill(stream, 2, page, variance);
  }
  float RankScale() const override { return 0.5f; }
  void SetRankProducts(int, int, size_t, const Products& products) override { taken = products; }

  void SetPages(int group, size_t num_pages) { pages_[group] = num_pages; }
  void Change(int group, int kind, size_t number) { versions_[{group, kind, number}] = ++last_; }
  // Returns the number that all elements of a vector have.
  uint16_t NumberOf(int group, int stream, int kind, size_t number) const {
    const uint64_t version = VersionOf({group, kind == 2 ? 1 : kind, number});
    return static_cast<uint16_t>(1 + version * 37 + stream * 5 + kind);
  }
  Products taken;
  const CacheLayout* layout = nullptr;

 private:
  struct Name {
    int group = 0, kind = 0;
    size_t number = 0;
    auto operator<=>(const Name&) const = default;
  };
  uint64_t VersionOf(const Name& name) const {
    const auto found = versions_.find(name);
    return found == versions_.end() ? 0 : found->second;
  }
  void Fill(int stream, int kind, size_t number, std::span<uint16_t> to) const {
    int group = 0;
    while (layout->FirstStreamOf(group) + layout->NumStreamsOf(group) <= stream) ++group;
    std::ranges::fill(to, NumberOf(group, stream, kind, number));
  }

  std::vector<size_t> pages_;
  const size_t num_keys_;
  std::map<Name, uint64_t> versions_;
  uint64_t last_ = 0;
};

// After each update the device has the selector's current vectors.
TEST(RankMirrorTest, FollowsASelector) {
  for (const Granularity granularity : {Granularity::kToken, Granularity::kHead}) {
    const CacheLayout layout = LayoutBy(granularity);
    const RankRoom room = {.num_keys = 8, .num_pages = 16};
    constexpr int kStreams = kLayers * kKvHeads;
    Vectors selector(layout.num_groups(), room.num_keys);
    selector.layout = &layout;
    for (int group = 0; group < layout.num_groups(); ++group) {
      selector.SetPages(group, 1);
      selector.Change(group, 1, 0);
    }
    RankMirror mirror(kStreams, kHeadDim, room);
    std::vector<uint16_t> device(kStreams * mirror.StreamSize());
    std::mt19937 random(3);
    int whole = 0, some = 0;
    for (int step = 0; step < 60; ++step) {
      const int group = static_cast<int>(random() % layout.num_groups());
      selector.Change(group, 0, random() % room.num_keys);
      if (step % 5 == 0) {
        const size_t page = selector.NumRankPages(group) % room.num_pages;
        selector.SetPages(group, page + 1);
        selector.Change(group, 1, page);
      }
      if (step % 20 == 19) {
        for (int key = 0; key < room.num_keys; ++key) {
          for (int each = 0; each < layout.num_groups(); ++each) selector.Change(each, 0, key);
        }
        for (size_t page = 0; page < selector.NumRankPages(group); ++page) {
          selector.Change(group, 1, page);
        }
      }
      if (step == 30) mirror.Forget();
      std::vector<RankMirror::Change> changes;
      if (mirror.Update(selector, layout, &changes)) {
        EXPECT_TRUE(changes.empty());
        std::ranges::copy(mirror.Vectors(), device.begin());
        ++whole;
      }
      for (const RankMirror::Change& change : changes) {
        for (size_t stream = 0; stream < change.num_streams; ++stream) {
          const size_t at = change.offset + stream * mirror.StreamSize();
          std::ranges::copy(mirror.Vectors().subspan(at, change.size), device.begin() + at);
        }
        ++some;
      }
      for (int each = 0; each < layout.num_groups(); ++each) {
        const int first = layout.FirstStreamOf(each);
        for (int stream = first; stream < first + layout.NumStreamsOf(each); ++stream) {
          const auto number = [&](size_t vector) {
            return device[stream * mirror.StreamSize() + vector * kHeadDim + 7];
          };
          for (size_t key = 0; key < selector.NumRankKeys(); ++key) {
            if (selector.RankKeyVersion(each, key) == 0) continue;
            ASSERT_EQ(number(key), selector.NumberOf(each, stream, 0, key)) << step;
          }
          for (size_t page = 0; page < selector.NumRankPages(each); ++page) {
            const size_t mean = room.num_keys + page;
            ASSERT_EQ(number(mean), selector.NumberOf(each, stream, 1, page)) << step;
            ASSERT_EQ(number(mean + room.num_pages), selector.NumberOf(each, stream, 2, page));
          }
        }
      }
    }
    EXPECT_GT(whole, 1);
    EXPECT_LT(whole, 20);
    EXPECT_GT(some, 40);
  }
}

// A change of the same vector in all groups is one copy.
TEST(RankMirrorTest, CopiesAVectorOfAllGroupsAtOnce) {
  const CacheLayout layout = LayoutBy(Granularity::kHead);
  Vectors selector(layout.num_groups(), 64);
  selector.layout = &layout;
  for (int group = 0; group < layout.num_groups(); ++group) selector.SetPages(group, 1);
  RankMirror mirror(kLayers * kKvHeads, kHeadDim, {.num_keys = 64, .num_pages = 16});
  std::vector<RankMirror::Change> changes;
  EXPECT_TRUE(mirror.Update(selector, layout, &changes));
  for (int group = 0; group < layout.num_groups(); ++group) selector.Change(group, 0, 40);
  selector.Change(2, 1, 0);
  EXPECT_FALSE(mirror.Update(selector, layout, &changes));
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].num_streams, size_t(kLayers * kKvHeads));
  EXPECT_EQ(changes[0].offset, size_t(40 * kHeadDim));
  EXPECT_EQ(changes[1].num_streams, 1u);
  // A group without pages, all of whose rows are read, has no products.
  selector.SetPages(1, 0);
  for (int group = 0; group < 3; ++group) selector.Change(group, 0, 41);
  EXPECT_FALSE(mirror.Update(selector, layout, &changes));
  EXPECT_EQ(changes.size(), 2u);
}

TEST(RankStoresTest, AreKeptForTheSelectorsThatStepped) {
  const std::unique_ptr<ggml_backend, GgmlDeleter> backend(ggml_backend_cpu_init());
  std::vector<const RankStore*> forgotten;
  RankStores stores([&](const RankStore* store) { forgotten.push_back(store); });
  const RankRoom small = {.num_keys = 8, .num_pages = 16}, large = {.num_keys = 8, .num_pages = 32};
  const auto use = [&](uint64_t selector, const RankRoom& room) {
    return stores.Use(backend.get(), selector, room, kLayers * kKvHeads, kHeadDim);
  };
  stores.BeginStep();
  RankStore* const first = use(1, small);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->vectors->ne[1], 8 + 2 * 16);
  RankStore* const second = use(2, small);
  EXPECT_NE(second, first);
  EXPECT_EQ(use(1, small), first);
  EXPECT_EQ(stores.Find(1, small).get(), first);
  EXPECT_EQ(stores.Find(1, large), nullptr);
  // A store for a longer list replaces the selector's store for a shorter one.
  stores.BeginStep();
  EXPECT_NE(use(1, large), nullptr);
  EXPECT_EQ(forgotten, (std::vector<const RankStore*>{first}));
  EXPECT_EQ(stores.Find(1, small), nullptr);
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(stores.Find(2, small).get(), second) << step;
    stores.BeginStep();
    use(1, large);
  }
  EXPECT_EQ(stores.Find(2, small), nullptr);
  EXPECT_EQ(forgotten.back(), second);
}

TEST(RankProductsTest, AreThoseOfScaledQueries) {
  const RankRoom room = {.num_keys = 16, .num_pages = 32};
  constexpr int kStreams = kLayers * kKvHeads, kLayer = 1, kGroup = kQHeads / kKvHeads;
  const size_t per_stream = size_t(room.NumVectors()) * kHeadDim;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<ggml_fp16_t> vectors(kStreams * per_stream);
  for (ggml_fp16_t& x : vectors) x = ggml_fp32_to_fp16(normal(random));
  std::vector<float> queries(kQHeads * kHeadDim);
  for (float& x : queries) x = normal(random);

  const std::unique_ptr<ggml_backend, GgmlDeleter> backend(ggml_backend_cpu_init());
  const std::unique_ptr<ggml_context, GgmlDeleter> context(
      ggml_init({.mem_size = 64 * ggml_tensor_overhead() + ggml_graph_overhead_custom(64, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  ggml_context* const ctx = context.get();
  ggml_tensor* all = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, kHeadDim, room.NumVectors(), kStreams);
  ggml_tensor* q = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kHeadDim, kQHeads);
  ggml_tensor* products = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, room.NumVectors(), kQHeads);
  ggml_cgraph* const graph = ggml_new_graph_custom(ctx, 64, false);
  AddRankProducts(ctx, graph, room, 0.5f,
                  ggml_view_3d(ctx, all, kHeadDim, room.NumVectors(), kKvHeads, all->nb[1],
                               all->nb[2], kLayer * kKvHeads * all->nb[2]),
                  q, products);
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer(
      ggml_backend_alloc_ctx_tensors(ctx, backend.get()));
  ggml_backend_tensor_set(all, vectors.data(), 0, ggml_nbytes(all));
  ggml_backend_tensor_set(q, queries.data(), 0, ggml_nbytes(q));
  ASSERT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
  std::vector<float> found(ggml_nelements(products));
  ggml_backend_tensor_get(products, found.data(), 0, ggml_nbytes(products));

  Vectors selector(1, room.num_keys);
  for (int head = 0; head < kKvHeads; ++head) {
    TakeRankProducts(room, found, kQHeads, kLayer, head, kKvHeads, &selector);
    const size_t stream = kLayer * kKvHeads + head;
    for (int query = 0; query < kGroup; ++query) {
      const float* const x = queries.data() + (head * kGroup + query) * kHeadDim;
      const auto product = [&](size_t vector, bool squares) {
        double sum = 0;
        for (int i = 0; i < kHeadDim; ++i) {
          const double scaled = 0.5 * x[i];
          sum += (squares ? scaled * scaled : scaled) *
                 ggml_fp16_to_fp32(vectors[stream * per_stream + vector * kHeadDim + i]);
        }
        return sum;
      };
      const RankVectors::Products& taken = selector.taken;
      for (int key = 0; key < room.num_keys; ++key) {
        EXPECT_NEAR(taken.keys[query * taken.keys_stride + key], product(key, false), 0.02);
      }
      for (int page = 0; page < room.num_pages; ++page) {
        const size_t mean = room.num_keys + page;
        EXPECT_NEAR(taken.means[query * taken.means_stride + page], product(mean, false), 0.02);
        EXPECT_NEAR(taken.variances[query * taken.variances_stride + page],
                    product(mean + room.num_pages, true), 0.02);
      }
    }
  }
}

}  // namespace
}  // namespace ebb::rank_products_test
