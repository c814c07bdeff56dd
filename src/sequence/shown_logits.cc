#include "src/sequence/shown_logits.h"

#include <cmath>
#include <limits>

#include <xxhash.h>

namespace ebb {

Status CheckFinite(std::span<const float> logits, RowType kv_type) {
  // The loop has no branch, so that the compiler vectorises it.
  bool all_finite = true;
  for (const float logit : logits) {
    all_finite &= std::fabs(logit) <= std::numeric_limits<float>::max();
  }
  if (all_finite) return OkStatus();
  return Corrupt(
      kv_type == RowType::kF16
          ? "the logits of the step are not finite; if the model's keys or values exceed "
            "the range of f16, the row types bf16 and f32 (--kv-type) hold them"
          : "the logits of the step are not finite");
}

void ShownLogits::AddToHash() {
  hash = XXH3_64bits_withSeed(values.data(), values.size() * sizeof(float), hash);
}

}  // namespace ebb
