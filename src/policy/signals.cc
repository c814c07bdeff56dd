#include "ebb/signals.h"

#include <algorithm>

namespace ebb {

SignalNeeds Union(const SignalNeeds& a, const SignalNeeds& b) {
  SignalNeeds both = {
      .mass = std::max(a.mass, b.mass),
      .mass_in_prefill = a.mass_in_prefill || b.mass_in_prefill,
      .num_recent_queries = std::max(a.num_recent_queries, b.num_recent_queries),
      .hidden_layers = a.hidden_layers,
      .keys = a.keys || b.keys,
      .keys_before_rope = a.keys_before_rope || b.keys_before_rope,
      .values = a.values || b.values,
      .eviction_logits = a.eviction_logits || b.eviction_logits,
  };
  std::vector<int>& layers = both.hidden_layers;
  layers.insert(layers.end(), b.hidden_layers.begin(), b.hidden_layers.end());
  std::sort(layers.begin(), layers.end());
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  return both;
}

}  // namespace ebb
