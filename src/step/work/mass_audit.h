// MassAudit measures how much attention mass a selector leaves unread: at every 17th position it
// reads all rows of one query head of one layer, and computes the share of the attention that the
// rows left out would have received. It changes no result.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_WORK_MASS_AUDIT_H_
#define EBB_STEP_WORK_MASS_AUDIT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebb/types.h"
#include "src/attention/attention.h"

namespace ebb {

class MassAudit {
 public:
  explicit MassAudit(const ModelShape& shape);

  // Sample names a query head by layer, kv head, and its number among the kv head's query heads.
  struct Sample {
    int layer = 0;
    int kv_head = 0;
    int query_head = 0;  // number among those of the kv head
  };
  // Returns which head to measure at a position; nullopt: none. Samples spread evenly over layers
  // and heads.
  [[nodiscard]] std::optional<Sample> At(Position position) const;

  struct Input {
    const AttentionKernel* kernel = nullptr;
    AttentionShape shape;
    RowsView rows;                      // all visible rows, with page addresses
    std::span<const RowRange> chosen;   // ranges of `rows`; not empty
    const float* q = nullptr;           // [head_dim]
    const float* newest_key = nullptr;  // [head_dim]; the last row, whose key is not stored yet
    float sink = kNoSink;
  };
  // Adds a sample: the share of the attention that the rows outside `chosen` would receive.
  void Add(const Input& input);

  [[nodiscard]] int64_t num_samples() const { return num_samples_; }
  // Returns the mean share over all samples; 0 without samples.
  [[nodiscard]] double UnreadMass() const {
    return num_samples_ == 0 ? 0 : sum_ / static_cast<double>(num_samples_);
  }

 private:
  const ModelShape& shape_;
  std::vector<float> key_;  // [head_dim]
  int64_t num_samples_ = 0;
  double sum_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_MASS_AUDIT_H_
