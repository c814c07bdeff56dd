// RankVectors is the interface of a selector that ranks pages by products of queries and vectors,
// so that a device can compute these products (src/step/device/rank_products.h).
#ifndef EBB_BASE_RANK_VECTORS_H_
#define EBB_BASE_RANK_VECTORS_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

// RankVectors gives access to a selector's vectors. The streams of a group have equally many
// vectors, which change together. Each version of a vector has a number, unique in the process, so
// that a device copies a vector only when its number has changed; 0: the vector was never set.
class RankVectors {
 public:
  virtual ~RankVectors() = default;

  // Returns the number of this selector, unique in the process.
  [[nodiscard]] virtual uint64_t RankId() const = 0;
  // Returns how many of the vectors are keys of single rows.
  [[nodiscard]] virtual size_t NumRankKeys() const = 0;
  // Returns how many pages have a mean and a variance of their keys; 0 for a group whose rows are
  // all read.
  [[nodiscard]] virtual size_t NumRankPages(int group) const = 0;
  [[nodiscard]] virtual uint64_t RankKeyVersion(int group, size_t key) const = 0;
  [[nodiscard]] virtual uint64_t RankPageVersion(int group, size_t page) const = 0;
  // Copies a key, [head_dim] in F16, to `to`.
  virtual void CopyRankKey(int stream, size_t key, std::span<uint16_t> to) const = 0;
  // Copies the mean and the variance of a page's keys, [head_dim] in F16 each.
  virtual void CopyRankPage(int stream, size_t page, std::span<uint16_t> mean,
                            std::span<uint16_t> variance) const = 0;
  // Returns the factor by which a query is scaled before it is multiplied by the vectors.
  [[nodiscard]] virtual float RankScale() const = 0;

  // Products holds the products of a kv head's scaled queries, each [queries, stride]: queries by
  // keys, queries by means, and squared queries by variances.
  struct Products {
    const float *keys = nullptr, *means = nullptr, *variances = nullptr;
    size_t keys_stride = 0, means_stride = 0, variances_stride = 0;
  };
  // Takes the products for a kv head. Called instead of Selector::Rank(), which would compute them.
  // Must not throw.
  virtual void SetRankProducts(int layer, int kv_head, size_t num_queries,
                               const Products& products) = 0;
};

}  // namespace ebb

#endif  // EBB_BASE_RANK_VECTORS_H_
