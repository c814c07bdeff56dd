// Holds the logits that a session shows, and a hash over all logits that it has shown.
#ifndef EBB_SEQUENCE_SHOWN_LOGITS_H_
#define EBB_SEQUENCE_SHOWN_LOGITS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

// Returns Corrupt if a logit is NaN or infinite: tokens sampled from such logits are meaningless,
// and equal hashes of NaN would look like equal results. kv_type: the type of the rows that the
// step read, for the message.
[[nodiscard]] Status CheckFinite(std::span<const float> logits, RowType kv_type);

struct ShownLogits {
  std::vector<float> values;  // [vocab_size]; empty before the first step and after a roll-back
  uint64_t hash = 0;

  void Set(std::span<const float> of_token) { values.assign(of_token.begin(), of_token.end()); }
  // Allocates memory, so that Set() with `num_values` values allocates nothing. Throws
  // std::bad_alloc.
  void Reserve(int num_values) { values.reserve(static_cast<size_t>(num_values)); }
  void AddToHash();
  // Calls Set(), then AddToHash().
  void Show(std::span<const float> of_token) {
    Set(of_token);
    AddToHash();
  }
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SHOWN_LOGITS_H_
