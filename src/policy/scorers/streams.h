// Finds the keys and values of a step, stream by stream; a stream is a (layer, kv head) pair.
#ifndef EBB_POLICY_SCORERS_STREAMS_H_
#define EBB_POLICY_SCORERS_STREAMS_H_

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "ebb/signals.h"
#include "src/base/attention_layout.h"

namespace ebb {

// Returns the key or value of a token in a stream, [head_dim]. by_layer: StepSignals::keys or
// ::values, [num_tokens, kv heads of the layer, head_dim] for each layer.
inline std::span<const float> VectorOf(const std::vector<std::span<const float>>& by_layer,
                                       const AttentionLayout& layout, int stream, int token) {
  const size_t head_dim = layout.head_dim();
  const int layer = layout.LayerOf(stream);
  const size_t row = size_t(token) * layout.NumKvHeads(layer) + layout.KvHeadOf(stream);
  return by_layer[layer].subspan(row * head_dim, head_dim);
}

// Returns x, or 0 if x is not finite.
inline float FiniteOr0(float x) { return std::isfinite(x) ? x : 0.0f; }

inline float L1Norm(std::span<const float> x) {
  float sum = 0;
  for (const float v : x) sum += std::abs(FiniteOr0(v));
  return sum;
}

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_STREAMS_H_
