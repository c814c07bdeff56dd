// HostFold computes the fold nodes (row_attention.h, compressed_rows.h) on the processor's backend,
// for full-precision rows and for rows of T2.
#ifndef EBB_STEP_DEVICE_HOST_FOLD_H_
#define EBB_STEP_DEVICE_HOST_FOLD_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "ggml.h"
#include "src/step/device/row_attention.h"

namespace ebb {

// kHiddenLogit is the logit of a row that a query does not see.
inline constexpr float kHiddenLogit = -std::numeric_limits<float>::infinity();

// Returns the logit, to base 2, of the product of a query and a key.
inline float LogitOf(const RowFold& fold, float product) {
  const float logit = product * fold.scale;
  const float capped =
      fold.soft_cap == 0 ? logit : fold.soft_cap * std::tanh(logit / fold.soft_cap);
  return capped * std::numbers::log2e_v<float>;
}

// HostFold attends to splits of rows, which it reads through an object of `Rows` for each thread.
// Its functions take a kv head and an index in the head's list:
//   int Count(int head) const: returns the length of the list
//   void BeginSplit(int head): is called before the next three functions
//   void Logits(int head, int row, float* logits): writes the logits of the head's queries
//   const float* Value(int head, int row): returns a value, valid until the next call
//   void EndSplit(int head, float weight, float* sum): completes a query's sum of weighted values
template <class Rows>
class HostFold {
 public:
  // Makes a fold that writes its result to `node`. REQUIRES: all arguments outlive this.
  HostFold(const RowFold& fold, ggml_tensor* node, Rows* rows)
      : fold_(fold),
        rows_(*rows),
        sums_(static_cast<float*>(node->data)),
        weights_(sums_ + fold.SumsSize()),
        logits_(weights_ + fold.WeightsSize()) {}

  // Computes thread `thread`'s share of the splits.
  void Run(int thread, int num_threads) {
    const int num_parts = fold_.NumSplits() * fold_.kv_heads;
    for (int part = thread; part < num_parts; part += num_threads) {
      RunSplit(part / fold_.kv_heads, part % fold_.kv_heads);
    }
  }

 private:
  void RunSplit(int split, int head) {
    const int begin = split * fold_.RowsOfSplit();
    const int end = std::min(begin + fold_.RowsOfSplit(), rows_.Count(head));
    const int size = fold_.head_dim, group = fold_.group;
    rows_.BeginSplit(head);
    scores_.resize(size_t(group) * std::max(0, end - begin));
    std::vector<float> largest(group, kHiddenLogit), sums(group, 0.0f);
    for (int row = begin; row < end; ++row) {
      float* const logits = scores_.data() + size_t(row - begin) * group;
      rows_.Logits(head, row, logits);
      for (int i = 0; i < group; ++i) largest[i] = std::max(largest[i], logits[i]);
    }
    const size_t first_query = size_t(head) * group;
    float* const out = sums_ + (size_t(split) * fold_.q_heads() + first_query) * size;
    std::fill_n(out, size_t(group) * size, 0.0f);
    for (int row = begin; row < end; ++row) {
      const float* const value = rows_.Value(head, row);
      for (int i = 0; i < group; ++i) {
        const float logit = scores_[size_t(row - begin) * group + i];
        if (fold_.LogitsSize() > 0) logits_[(first_query + i) * fold_.num_rows + row] = logit;
        if (logit == kHiddenLogit) continue;
        const float weight = std::exp2(logit - largest[i]);
        sums[i] += weight;
        for (int d = 0; d < size; ++d) out[i * size + d] += weight * value[d];
      }
    }
    float* const pairs = weights_ + (size_t(split) * fold_.q_heads() + first_query) * 2;
    for (int i = 0; i < group; ++i) {
      rows_.EndSplit(head, sums[i], out + i * size);
      pairs[2 * i] = largest[i];
      pairs[2 * i + 1] = sums[i];
    }
  }

  const RowFold& fold_;
  Rows& rows_;
  float *const sums_, *const weights_, *const logits_;
  std::vector<float> scores_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_HOST_FOLD_H_
