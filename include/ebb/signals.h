// Signals: what a step can show to a scorer. Each is computed only if a scorer or an observer
// declared the need.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SIGNALS_H_
#define EBB_SIGNALS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// Mass is the softmax probability that a row received, summed over the queries of the step. A draft
// that follows a verifying step of several tokens gets the mean over the queries that see the row,
// as if by steps of one.
enum class MassNeed {
  kNone,
  kSummed,        // one number per row: summed over all query heads (and layers) of the group
  kPerKvHead,     // one per (kv head of the group, row)
  kPerQueryHead,  // one per (query head of the group, row)
};

// The mass that is added up over steps for a scorer that declares it (Scorer::Total()), and given
// to the scorer when a placement is due.
enum class MassTotal {
  kNone,  // every step matters by itself
  // The sum over the decode steps since the first prefill ended of each step's mean over finite
  // layers and their query heads.
  kDecodeSum,
};

struct SignalNeeds {
  MassNeed mass = MassNeed::kNone;
  // Mass of prefill steps too. It needs a second pass over the keys there and is priced apart.
  bool mass_in_prefill = false;
  int num_recent_queries = 0;           // the last n queries of every layer, after RoPE
  std::vector<int> hidden_layers = {};  // blocks (from 0) whose output is wanted
  bool keys = false;                    // of the step's new tokens, after RoPE
  bool keys_before_rope = false;
  bool values = false;
  bool eviction_logits = false;  // of models that mark rows (Model::eviction_window()) alone

  [[nodiscard]] bool Empty() const {
    return mass == MassNeed::kNone && num_recent_queries == 0 && hidden_layers.empty() && !keys &&
           !keys_before_rope && !values && !eviction_logits;
  }
};

// The union of two needs: the finer mass, the longer query history, all layers of both.
[[nodiscard]] SignalNeeds Union(const SignalNeeds& a, const SignalNeeds& b);

// The signals of one group in a step.
struct GroupSignals {
  // [num_mass_heads, num_rows]: kSummed 1 head; kPerKvHead, kPerQueryHead: the group's heads,
  // layer by layer. Empty when mass was not asked for, or not in this kind of step.
  std::span<const float> mass = {};
  int num_mass_heads = 0;
  int num_rows = 0;      // rows of the group, the step's new ones included
  int num_new_rows = 0;  // at the end of the list
  // Layers of the group whose attention is finite in this step. The others have no mass (000, 3.1).
  int num_layers_counted = 0;
};

// The signals of the sequence in a step. Spans live until the next step. By-layer lists are empty
// when the signal was not asked for.
struct StepSignals {
  StepKind kind = StepKind::kDecode;
  Position first_position = 0;  // of the step's new tokens
  int num_tokens = 0;
  // By layer: [num_tokens, kv heads of the layer, head_dim].
  std::vector<std::span<const float>> keys = {};
  std::vector<std::span<const float>> keys_before_rope = {};  // the same
  std::vector<std::span<const float>> values = {};            // the same
  // By layer: [num_tokens, kv heads of the layer]. Above 0: the row of the token that is
  // Model::eviction_shift() tokens before may go.
  std::vector<std::span<const float>> eviction_logits = {};
  // By layer: [num_recent, query heads, head_dim], oldest first; num_recent grows to what was
  // asked.
  std::vector<std::span<const float>> recent_queries = {};
  int num_recent = 0;
  // The blocks that anybody asked for, ascending, and their outputs: [num_tokens, embed_dim].
  std::vector<int> hidden_layers = {};
  std::vector<std::span<const float>> hidden = {};
};

}  // namespace ebb

#endif  // EBB_SIGNALS_H_
