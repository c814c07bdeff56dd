// Products of queries with the vectors that a selector ranks pages by (src/base/rank_vectors.h),
// computed on a device, where they would take the host longer than the rest of the step. The
// vectors lie in the device's memory from step to step; the host gets the products and chooses.
#ifndef EBB_STEP_DEVICE_RANK_PRODUCTS_H_
#define EBB_STEP_DEVICE_RANK_PRODUCTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"
#include "src/base/rank_vectors.h"
#include "src/kv/cache_layout.h"

namespace ebb {

// The numbers of vectors of a stream that a graph has room for: keys, then means, then variances.
struct RankRoom {
  int num_keys = 0;
  int num_pages = 0;  // 0: the host multiplies

  [[nodiscard]] int NumVectors() const { return num_keys + 2 * num_pages; }
  // Products of each query.
  [[nodiscard]] int NumProducts() const { return NumVectors(); }
  [[nodiscard]] bool operator==(const RankRoom&) const = default;
};

// The host's copy of the vectors that lie in a device's memory.
class RankMirror {
 public:
  RankMirror(int num_streams, int head_dim, const RankRoom& room);

  // A vector of some streams that follow one another, in numbers of F16.
  struct Change {
    size_t offset = 0, size = 0, num_streams = 0;
  };
  // Takes over the vectors that have changed. Returns whether so many have that all of Vectors()
  // should be copied to the device; appends each of them to `changes` otherwise. REQUIRES: there is
  // room.
  [[nodiscard]] bool Update(const RankVectors& vectors, const CacheLayout& layout,
                            std::vector<Change>* changes);
  // F16 [streams, vectors, head_dim]
  [[nodiscard]] std::span<const uint16_t> Vectors() const { return vectors_; }
  [[nodiscard]] size_t StreamSize() const { return size_t(room_.NumVectors()) * head_dim_; }
  void Forget() { versions_.clear(); }

 private:
  // The number of versions of a group: of keys, then of pages.
  [[nodiscard]] size_t NumVersions() const { return size_t(room_.num_keys) + room_.num_pages; }

  const size_t head_dim_;
  const RankRoom room_;
  std::vector<uint16_t> vectors_;
  std::vector<uint64_t> versions_;  // [groups, keys and pages]
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
