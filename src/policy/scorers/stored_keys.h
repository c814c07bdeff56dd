// Stores copies of rows' keys for scorers that compare rows with each other: scaled to length 1 in
// 16 bits, which makes cosines exact to about 2e-5, together with their lengths.
#ifndef EBB_POLICY_SCORERS_STORED_KEYS_H_
#define EBB_POLICY_SCORERS_STORED_KEYS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {

// Returns the dot product of two stored keys. It cannot overflow: keys of length 1 have a product
// of at most 2^30, as has any part of the sum.
inline int32_t DotOfUnits(const int16_t* a, const int16_t* b, size_t dim) {
  int32_t sum = 0;
  for (size_t c = 0; c < dim; ++c) sum += int32_t{a[c]} * int32_t{b[c]};
  return sum;
}

class StoredKeys {
 public:
  static constexpr float kOne = 32767;

  // Adds two columns to `owner`. Keys are zeros until Store(). first_streams: see Column.
  StoredKeys(ColumnScorer* owner, const std::vector<int>& first_streams, int head_dim)
      : head_dim_(std::max(1, head_dim)),
        units_(owner, first_streams, head_dim_),
        lengths_(owner, first_streams) {}

  // Stores the key of the row that is `from_end` rows from the end of the stream (1: the last row).
  // Numbers that are not finite count as 0.
  void Store(int stream, size_t from_end, std::span<const float> key) {
    constexpr float kSmallestNorm = 1e-8f;
    float sum = 0;
    for (const float x : key) sum += FiniteOr0(x) * FiniteOr0(x);
    const float length = std::min(std::sqrt(sum), std::numeric_limits<float>::max());
    const float by = kOne / (length + kSmallestNorm);
    lengths_[stream].last(from_end).front() = length;
    int16_t* to = units_[stream].last(from_end * head_dim_).data();
    for (size_t c = 0; c < key.size(); ++c) {
      to[c] = static_cast<int16_t>(std::lrint(FiniteOr0(key[c]) * by));
    }
  }
  // Writes the key of a row, multiplied by `by`, to `key` [head_dim].
  void Read(int stream, size_t row, float by, std::span<float> key) const {
    const int16_t* unit = units(stream) + row * head_dim_;
    const float scale = by * lengths_[stream][row] / kOne;
    for (size_t c = 0; c < key.size(); ++c) key[c] = scale * unit[c];
  }
  [[nodiscard]] const int16_t* units(int stream) const { return units_[stream].data(); }
  // Returns the cosine of two keys from the product of their stored units.
  [[nodiscard]] static float Cosine(int64_t product) {
    return static_cast<float>(product) / (kOne * kOne);
  }

 private:
  const size_t head_dim_;
  Column<int16_t> units_;  // [streams][rows, head_dim]
  Column<float> lengths_;  // [streams][rows]
};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_STORED_KEYS_H_
