// MassAudit measures on samples how much of the attention steps with a selector leave unread: at
// every 17th position it reads all rows of one query head of one layer, and computes from their
// keys the share of the attention that the rows left out would have received. It changes no result.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_MASS_AUDIT_H_
#define EBB_STEP_MASS_AUDIT_H_

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

  // Sample names a query head by the kv head that it reads.
  struct Sample {
    int layer = 0;
    int kv_head = 0;
    int query_head = 0;  // of those that share the kv head
  };
  // Returns the sample of a position; nullopt: it has none. Samples spread evenly over layers and
  // heads.
  [[nodiscard]] std::optional<Sample> At(Position position) const;

  struct Input {
    const AttentionKernel* kernel = nullptr;
    AttentionShape shape;
    RowsView rows;                      // all that are visible, with addresses
    std::span<const RowRange> chosen;   // of `rows`, not empty
    const float* q = nullptr;           // [head_dim]
    const float* newest_key = nullptr;  // [head_dim]; its row, the last one, is not stored yet
    float sink = kNoSink;
  };
  // Adds the share of the attention that the rows which are not chosen would receive.
  void Add(const Input& input);

  [[nodiscard]] int64_t num_samples() const { return num_samples_; }
  // Returns the mean over samples; 0 without a sample.
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

#endif  // EBB_STEP_MASS_AUDIT_H_
