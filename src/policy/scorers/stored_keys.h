// Copies of rows' keys, for scorers that compare rows with each other: of length 1 in 16 bits,
// which makes similarities right to about 2e-5, and their lengths.
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

// Keys of length 1 make a product of at most 2^30, and so does any part of the sum.
inline int32_t DotOfUnits(const int16_t* a, const int16_t* b, size_t dim) {
  int32_t sum = 0;
  for (size_t c = 0; c < dim; ++c) sum += int32_t{a[c]} * int32_t{b[c]};
  return sum;
}

class StoredKeys {
 public:
  static constexpr float kOne = 32767;

  // Adds two columns to `owner`; keys are zeros until they are stored. first_streams: see Column.
  StoredKeys(ColumnScorer* owner, const std::vector<int>& first_streams, int head_dim)
      : head_dim_(std::max(1, head_dim)),
        units_(owner, first_streams, head_dim_),
        lengths_(owner, first_streams) {}

  // The key of the row that is `from_end` rows from the end.
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
  // A row's key, times `by`.
  void Read(int stream, size_t row, float by, std::span<float> key) const {
    const int16_t* unit = units(stream) + row * head_dim_;
    const float scale = by * lengths_[stream][row] / kOne;
    for (size_t c = 0; c < key.size(); ++c) key[c] = scale * unit[c];
  }
  [[nodiscard]] const int16_t* units(int stream) const { return units_[stream].data(); }
  // The cosine that a product of stored units stands for.
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
