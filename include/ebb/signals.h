// Signals are the data of a step that a scorer can ask for. The engine computes a signal only if a
// scorer or an observer declared the need.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SIGNALS_H_
#define EBB_SIGNALS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// MassNeed selects the granularity in which a scorer needs the mass: the softmax probability that a
// row received, summed over the queries of the step. When a draft catches up on a verifying step of
// several tokens, the mass is the mean over the queries that see the row, as if each token had been
// a step of its own.
enum class MassNeed {
  kNone,
  kSummed,        // one number per row: summed over all query heads (and layers) of the group
  kPerKvHead,     // one per (kv head of the group, row)
  kPerQueryHead,  // one per (query head of the group, row)
};

// MassTotal names the sum of the mass over steps that a scorer declares by Scorer::Total(). The
// engine then keeps the sum and hands it to the scorer when a placement is due.
enum class MassTotal {
  kNone,  // every step matters by itself
  // Sums, over the decode steps since the end of the first prefill, each step's mean mass over the
  // query heads of the layers whose attention is finite.
  kDecodeSum,
};

// SignalNeeds lists the signals that a scorer, a selector or an observer needs.
struct SignalNeeds {
  MassNeed mass = MassNeed::kNone;
  // Requests the mass of prefill steps too, which costs a second pass over the keys in each.
  bool mass_in_prefill = false;
  int num_recent_queries = 0;           // the last n queries of every layer, after RoPE
  std::vector<int> hidden_layers = {};  // blocks (from 0) whose output is wanted
  bool keys = false;                    // of the step's new tokens, after RoPE
  bool keys_before_rope = false;
  bool values = false;
  bool eviction_logits = false;  // only for models that mark rows (Model::eviction_window())

  [[nodiscard]] bool Empty() const {
    return mass == MassNeed::kNone && num_recent_queries == 0 && hidden_layers.empty() && !keys &&
           !keys_before_rope && !values && !eviction_logits;
  }
};

// Returns the union of two needs: the finer mass, the longer query history, all layers of both.
[[nodiscard]] SignalNeeds Union(const SignalNeeds& a, const SignalNeeds& b);

// GroupSignals holds the signals of one group in a step.
struct GroupSignals {
  // Holds the mass, [num_mass_heads, num_rows]. kSummed has 1 head; kPerKvHead and kPerQueryHead
  // have the group's heads, layer by layer. Empty if no scorer asked for mass in this kind of step.
  std::span<const float> mass = {};
  int num_mass_heads = 0;
  int num_rows = 0;      // rows of the group, the step's new ones included
  int num_new_rows = 0;  // at the end of the list
  // Counts the group's layers whose attention is finite in this step. The other layers add no mass
  // ("Not All Thoughts Need HBM", 3.1).
  int num_layers_counted = 0;
};

// StepSignals holds the signals of a sequence in a step. Spans are valid until the next step. A
// list by layer is empty if no scorer asked for the signal.
struct StepSignals {
  StepKind kind = StepKind::kDecode;
  Position first_position = 0;  // of the step's new tokens
  int num_tokens = 0;
  // Holds the keys of the step's tokens after RoPE, by layer: [num_tokens, kv heads of the layer,
  // head_dim].
  std::vector<std::span<const float>> keys = {};
  std::vector<std::span<const float>> keys_before_rope = {};  // the same
  std::vector<std::span<const float>> values = {};            // the same
  // Holds the eviction logits by layer: [num_tokens, kv heads of the layer]. A logit above 0 marks
  // the row of the token Model::eviction_shift() positions before as one that may be evicted.
  std::vector<std::span<const float>> eviction_logits = {};
  // Holds the latest queries by layer: [num_recent, query heads, head_dim], oldest first.
  // num_recent grows step by step up to SignalNeeds::num_recent_queries.
  std::vector<std::span<const float>> recent_queries = {};
  int num_recent = 0;
  // Holds the hidden states that scorers asked for: the numbers of the blocks, ascending, and each
  // block's output, [num_tokens, embed_dim].
  std::vector<int> hidden_layers = {};
  std::vector<std::span<const float>> hidden = {};
};

}  // namespace ebb

#endif  // EBB_SIGNALS_H_
