// A selector that ranks pages of rows by products of queries and vectors implements RankVectors, so
// that a device can compute these products (src/step/device/rank_products.h).
#ifndef EBB_BASE_RANK_VECTORS_H_
#define EBB_BASE_RANK_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// All streams, (layer, kv head) pairs, of a group have as many vectors, which change together.
// Every version of a vector has a number that no other vector of the process ever has; 0: never
// set.
class RankVectors {
 public:
  virtual ~RankVectors() = default;

  // A number that no other version and no other selector of the process has.
  [[nodiscard]] virtual uint64_t RankId() const = 0;
  // Keys of single rows.
  [[nodiscard]] virtual size_t NumRankKeys() const = 0;
  // Pages with a mean and a variance of their keys; 0 in a group of which all rows are read.
  [[nodiscard]] virtual size_t NumRankPages(int group) const = 0;
  [[nodiscard]] virtual uint64_t RankKeyVersion(int group, size_t key) const = 0;
  [[nodiscard]] virtual uint64_t RankPageVersion(int group, size_t page) const = 0;
  // to: [head_dim], in f16.
  virtual void CopyRankKey(int stream, size_t key, std::span<uint16_t> to) const = 0;
  // mean, variance: [head_dim], in f16.
  virtual void CopyRankPage(int stream, size_t page, std::span<uint16_t> mean,
                            std::span<uint16_t> variance) const = 0;
  // Queries are multiplied by this before vectors are.
  [[nodiscard]] virtual float RankScale() const = 0;

  // The products of scaled queries of a kv head, each [queries, stride]: with keys, with means, and
  // of squared queries with variances.
  struct Products {
    const float *keys = nullptr, *means = nullptr, *variances = nullptr;
    size_t keys_stride = 0, means_stride = 0, variances_stride = 0;
  };
  // Replaces Selector::Rank() of a kv head. Must not throw.
  virtual void SetRankProducts(int layer, int kv_head, size_t num_queries,
                               const Products& products) = 0;
};

}  // namespace ebb

#endif  // EBB_BASE_RANK_VECTORS_H_
