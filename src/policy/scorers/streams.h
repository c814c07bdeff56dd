// The keys and values of a step, stream by stream; a stream is a (layer, kv head) pair.
#ifndef EBB_POLICY_SCORERS_STREAMS_H_
#define EBB_POLICY_SCORERS_STREAMS_H_

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "ebb/signals.h"
#include "ebb/types.h"

namespace ebb {

// by_layer: StepSignals::keys or ::values, [num_tokens, kv heads, head_dim] each.
inline std::span<const float> VectorOf(const std::vector<std::span<const float>>& by_layer,
                                       const ModelShape& shape, int stream, int token) {
  const size_t head_dim = shape.head_dim;
  const size_t kv_heads = shape.num_kv_heads;
  const size_t at = (token * kv_heads + stream % kv_heads) * head_dim;
  return by_layer[stream / kv_heads].subspan(at, head_dim);
}

// What is not finite counts as 0.
inline float FiniteOr0(float x) { return std::isfinite(x) ? x : 0.0f; }

inline float L1Norm(std::span<const float> x) {
  float sum = 0;
  for (const float v : x) sum += std::abs(FiniteOr0(v));
  return sum;
}

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_STREAMS_H_
