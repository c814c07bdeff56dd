// Products of queries with the vectors that a selector ranks pages by (src/base/rank_vectors.h),
// computed on a device, where they would take the host longer than the rest of the step. The
// vectors lie in the device's memory from step to step; the host gets the products and chooses.
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

// RankRoom is how many vectors of a stream a graph has room for: keys, then means, then variances.
struct RankRoom {
  int num_keys = 0;
  int num_pages = 0;  // 0: the host multiplies

  // Returns the room for `num_keys` keys and `num_pages` pages, rounded up so that a graph serves
  // many steps.
  [[nodiscard]] static RankRoom Of(size_t num_keys, size_t num_pages);
  // Returns the number of vectors of a stream, which is also the number of products of a query.
  [[nodiscard]] int NumVectors() const { return num_keys + 2 * num_pages; }
  [[nodiscard]] bool operator==(const RankRoom&) const = default;
};

// RankMirror is the host's copy of a selector's vectors that lie in a device's memory.
class RankMirror {
 public:
  // Returns the bytes of the vectors, on the host and again in the device's memory.
  [[nodiscard]] static size_t BytesFor(size_t num_streams, size_t head_dim, const RankRoom& room) {
    return num_streams * room.NumVectors() * head_dim * sizeof(uint16_t);
  }

  RankMirror(int num_streams, int head_dim, const RankRoom& room);

  // Change is one vector of each of `num_streams` streams that follow one another; offset and size
  // count numbers of F16.
  struct Change {
    size_t offset = 0, size = 0, num_streams = 0;
  };
  // Copies the vectors that have changed. Returns true if so many have changed that all of
  // Vectors() should be uploaded; otherwise writes the changes to `changes`. REQUIRES: there is
  // room; the selector and its layout are always the same.
  [[nodiscard]] bool Update(const RankVectors& vectors, const CacheLayout& layout,
                            std::vector<Change>* changes);
  // Returns the vectors, F16 [streams, vectors, head_dim].
  [[nodiscard]] std::span<const uint16_t> Vectors() const { return vectors_; }
  [[nodiscard]] size_t StreamSize() const { return size_t(room_.NumVectors()) * head_dim_; }
  // Makes the next Update() copy all vectors.
  void Forget() { versions_.clear(); }

 private:
  // Returns how many versions a group has: of keys, then of pages.
  [[nodiscard]] size_t NumVersions() const { return size_t(room_.num_keys) + room_.num_pages; }
  // Writes the keys and pages of a group with a new version to keys_ and pages_, and remembers the
  // versions.
  void FindChanged(const RankVectors& vectors, int group);

  const size_t head_dim_;
  const RankRoom room_;
  std::vector<uint16_t> vectors_;
  std::vector<uint64_t> versions_;  // [groups, keys and pages]; empty: nothing was taken over
  std::vector<size_t> keys_, pages_;
};

// RankStore holds a selector's vectors in a device's memory.
struct RankStore {
  uint64_t selector = 0;  // RankVectors::RankId()
  RankRoom room;
  RankMirror mirror;
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  ggml_tensor* vectors = nullptr;  // F16 [head_dim, NumVectors(), streams]
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer;
};

// RankStores keeps the stores of the selectors that stepped last. Graphs share the stores whose
// vectors they name.
class RankStores {
 public:
  // Calls `forget` for each store that goes, so that graphs let go of it.
  explicit RankStores(std::function<void(const RankStore*)> forget) : forget_(std::move(forget)) {}

  // Returns the selector's store with this room, and makes one where there is none. Null: the
  // device has no memory for it.
  RankStore* Use(ggml_backend_t backend, uint64_t selector, const RankRoom& room, int num_streams,
                 int head_dim);
  // Lets go of stores that the last kKept steps did not use.
  void BeginStep();
  [[nodiscard]] std::shared_ptr<RankStore> Find(uint64_t selector, const RankRoom& room) const;
  void ForgetVectors();
  void Leak();  // the device was lost

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

// Multiplies the queries of a layer. vectors: F16 [head_dim, NumVectors(), kv_heads]. queries: F32
// [head_dim, query heads]. products: F32, gets [query heads, keys and means], then [query heads,
// variances].
void AddRankProducts(ggml_context* context, ggml_cgraph* graph, const RankRoom& room, float scale,
                     ggml_tensor* vectors, ggml_tensor* queries, ggml_tensor* products);

// Gives a selector the products of a layer, as AddRankProducts() leaves them.
void TakeRankProducts(const RankRoom& room, std::span<const float> products, int num_q_heads,
                      int layer, int kv_head, int num_kv_heads, RankVectors* selector);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_RANK_PRODUCTS_H_
