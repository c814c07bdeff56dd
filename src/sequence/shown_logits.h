// The logits that a session shows, and the hash over all that it has shown.
#ifndef EBB_SEQUENCE_SHOWN_LOGITS_H_
#define EBB_SEQUENCE_SHOWN_LOGITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

// Returns Corrupt if a logit is NaN or infinite. A text drawn from such logits means nothing, and
// the hash of NaN equals itself. kv_type: of the rows that the step read.
[[nodiscard]] Status CheckFinite(std::span<const float> logits, RowType kv_type);

struct ShownLogits {
  std::vector<float> values;  // [vocab_size]; empty before the first step and after a roll-back
  uint64_t hash = 0;

  void Set(std::span<const float> of_token) { values.assign(of_token.begin(), of_token.end()); }
  // Set() of so many values allocates nothing then. Throws std::bad_alloc.
  void Reserve(int num_values) { values.reserve(static_cast<size_t>(num_values)); }
  void AddToHash();
  // Both, in this order.
  void Show(std::span<const float> of_token) {
    Set(of_token);
    AddToHash();
  }
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SHOWN_LOGITS_H_
