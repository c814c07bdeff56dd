// RankVectors is the interface of a selector that ranks pages of rows by products of queries and
// vectors, so that a device can compute these products (src/step/device/rank_products.h).
#ifndef EBB_BASE_RANK_VECTORS_H_
#define EBB_BASE_RANK_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// RankVectors gives access to a selector's vectors. All streams of a group have the same number of
// vectors, which change together. Every version of a vector has a number that is unique in the
// process, so that a device copies a vector only when its number changes; 0: the vector was never
// set.
class RankVectors {
 public:
  virtual ~RankVectors() = default;

  // Returns a number that is unique in the process to this selector.
  [[nodiscard]] virtual uint64_t RankId() const = 0;
  // Returns the number of vectors that are keys of single rows.
  [[nodiscard]] virtual size_t NumRankKeys() const = 0;
  // Returns the number of pages that have a mean and a variance of their keys; 0 for a group of
  // which all rows are read.
  [[nodiscard]] virtual size_t NumRankPages(int group) const = 0;
  [[nodiscard]] virtual uint64_t RankKeyVersion(int group, size_t key) const = 0;
  [[nodiscard]] virtual uint64_t RankPageVersion(int group, size_t page) const = 0;
  // Copies a key to `to`: [head_dim], in F16.
  virtual void CopyRankKey(int stream, size_t key, std::span<uint16_t> to) const = 0;
  // Copies the mean and the variance of a page's keys: [head_dim] each, in F16.
  virtual void CopyRankPage(int stream, size_t page, std::span<uint16_t> mean,
                            std::span<uint16_t> variance) const = 0;
  // Returns the factor by which queries are scaled before they are multiplied with vectors.
  [[nodiscard]] virtual float RankScale() const = 0;

  // Products holds the products of a kv head's scaled queries, each [queries, stride]: of queries
  // with keys, of queries with means, and of squared queries with variances.
  struct Products {
    const float *keys = nullptr, *means = nullptr, *variances = nullptr;
    size_t keys_stride = 0, means_stride = 0, variances_stride = 0;
  };
  // Sets the products of a kv head, in place of Selector::Rank(). Must not throw.
  virtual void SetRankProducts(int layer, int kv_head, size_t num_queries,
                               const Products& products) = 0;
};

}  // namespace ebb

#endif  // EBB_BASE_RANK_VECTORS_H_
