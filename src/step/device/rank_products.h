// Computes on a device the products of queries with the vectors by which a selector ranks pages
// (src/base/rank_vectors.h). On the host they would take longer than the rest of the step. The
// vectors stay in the device's memory from step to step; the host downloads the products and
// chooses pages.
#ifndef EBB_STEP_DEVICE_RANK_PRODUCTS_H_
#define EBB_STEP_DEVICE_RANK_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "src/base/ggml_deleter.h"
#include "src/base/rank_vectors.h"
#include "src/kv/cache_layout.h"

namespace ebb {

// RankRoom counts the vectors of a stream for which a graph is built: first keys, then a mean of
// each page, then a variance of each page.
struct RankRoom {
  int num_keys = 0;
  int num_pages = 0;  // 0: the host computes the products

  // Returns the numbers for at least `num_keys` keys and `num_pages` pages, rounded up so that a
  // graph serves many steps.
  [[nodiscard]] static RankRoom Of(size_t num_keys, size_t num_pages);
  // Returns the number of vectors of a stream, which is also the number of products of a query.
  [[nodiscard]] int NumVectors() const { return num_keys + 2 * num_pages; }
  [[nodiscard]] bool operator==(const RankRoom&) const = default;
};

// RankMirror is the host's copy of a selector's vectors on a device, by which it finds the vectors
// to upload.
class RankMirror {
 public:
  // Returns the bytes of the vectors in one copy; the host and the device have one each.
  [[nodiscard]] static size_t BytesFor(size_t num_streams, size_t head_dim, const RankRoom& room) {
    return num_streams * room.NumVectors() * head_dim * sizeof(uint16_t);
  }

  RankMirror(int num_streams, int head_dim, const RankRoom& room);

  // Change is one changed vector in each of `num_streams` consecutive streams. `offset` and `size`
  // count F16 numbers of Vectors().
  struct Change {
    size_t offset = 0, size = 0, num_streams = 0;
  };
  // Copies the vectors that have changed since the last call. Returns true if so many have that all
  // of Vectors() should be uploaded; otherwise writes the changes to `changes`. REQUIRES: the
  // vectors fit in the RankRoom; all calls pass the same selector and layout.
  [[nodiscard]] bool Update(const RankVectors& vectors, const CacheLayout& layout,
                            std::vector<Change>* changes);
  // Returns the vectors, F16 [streams, vectors, head_dim].
  [[nodiscard]] std::span<const uint16_t> Vectors() const { return vectors_; }
  [[nodiscard]] size_t StreamSize() const { return size_t(room_.NumVectors()) * head_dim_; }
  // Makes the next Update() copy all vectors.
  void Forget() { versions_.clear(); }

 private:
  // Returns the number of versions of a group: one for each key, then one for each page.
  [[nodiscard]] size_t NumVersions() const { return size_t(room_.num_keys) + room_.num_pages; }
  // Writes the numbers of a group's keys and pages that have a new version to keys_ and pages_, and
  // stores the versions.
  void FindChanged(const RankVectors& vectors, int group);

  const size_t head_dim_;
  const RankRoom room_;
  std::vector<uint16_t> vectors_;
  std::vector<uint64_t> versions_;  // [groups, keys and pages]; empty: nothing was copied yet
  std::vector<size_t> keys_, pages_;
};

// RankStore holds the vectors of one selector in a device's memory.
struct RankStore {
  uint64_t selector = 0;  // its RankVectors::RankId()
  RankRoom room;
  RankMirror mirror;
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  ggml_tensor* vectors = nullptr;  // F16 [head_dim, NumVectors(), streams]
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer;
};

// RankStores keeps the stores of the selectors that recent steps used. Graphs that use a store's
// vectors share its ownership.
class RankStores {
 public:
  // Makes an empty list, which calls `forget` for each store that it drops, so that graphs release
  // it.
  explicit RankStores(std::function<void(const RankStore*)> forget) : forget_(std::move(forget)) {}

  // Returns the selector's store of this size, which it makes if there is none. Null: the device
  // has no memory for it.
  RankStore* Use(ggml_backend_t backend, uint64_t selector, const RankRoom& room, int num_streams,
                 int head_dim);
  // Drops stores that the last kKept steps did not use.
  void BeginStep();
  [[nodiscard]] std::shared_ptr<RankStore> Find(uint64_t selector, const RankRoom& room) const;
  void ForgetVectors();
  void Leak();  // called after the device was lost: frees nothing

 private:
  static constexpr int kKept = 8;
  struct Used {
    std::shared_ptr<RankStore> store;
    int steps_ago = 0;
  };
  template <typename Which>
  void Drop(const Which& which);

  const std::function<void(const RankStore*)> forget_;
  std::vector<Used> stores_;
};

// Adds nodes that multiply the queries of a layer by the selector's vectors. vectors: F16
// [head_dim, NumVectors(), kv_heads]. queries: F32 [head_dim, query heads]. products: F32, receives
// [query heads, keys and means], then [query heads, variances].
void AddRankProducts(ggml_context* context, ggml_cgraph* graph, const RankRoom& room, float scale,
                     ggml_tensor* vectors, ggml_tensor* queries, ggml_tensor* products);

// Passes a layer's products, as AddRankProducts() lays them out, to the selector.
void TakeRankProducts(const RankRoom& room, std::span<const float> products, int num_q_heads,
                      int layer, int kv_head, int num_kv_heads, RankVectors* selector);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_RANK_PRODUCTS_H_
