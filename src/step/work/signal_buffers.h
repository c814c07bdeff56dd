// SignalBuffers holds the signals of a sequence (mass, keys, queries, hidden states, ...) that its
// policy and observers need. Begin() lays out the arrays for a step, the graph's nodes fill them,
// and Group() and step() return them.
//
// Thread safety: between Begin() and the end of the step, nodes write distinct parts from several
// threads; everything else happens between steps.
#ifndef EBB_STEP_WORK_SIGNAL_BUFFERS_H_
#define EBB_STEP_WORK_SIGNAL_BUFFERS_H_

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ebb/signals.h"
#include "ebb/state.h"
#include "ebb/types.h"
#include "src/attention/decode.h"
#include "src/base/attention_layout.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class SignalBuffers {
 public:
  // Returns the bytes of summed mass for `num_groups` groups of `num_rows` rows, and of the keys of
  // `num_tokens` tokens.
  [[nodiscard]] static size_t BytesFor(const ModelShape& shape, int num_groups, size_t num_rows,
                                       size_t num_tokens) {
    return sizeof(float) *
           (num_groups * num_rows + num_tokens * shape.NumStreams() * shape.head_dim);
  }

  SignalBuffers(const ModelShape& shape, Granularity granularity, const SignalNeeds& needs);
  [[nodiscard]] Granularity granularity() const { return granularity_; }

  // Division says whether a step of several tokens has one array of mass, to which all tokens add,
  // or one for each token.
  enum class Division { kWhole, kByToken };
  // Prepares the arrays for a step of `num_tokens` tokens from position `first` on, whose rows are
  // in `cache` already. The cache has either the groups of these signals or one group for
  // everything.
  void Begin(const SequenceCache& cache, StepKind kind, Position first, int num_tokens,
             Division division = Division::kWhole);
  [[nodiscard]] const SignalNeeds& needs() const { return needs_; }
  [[nodiscard]] const AttentionLayout& layout() const { return layout_; }
  // Returns whether the current step must compute mass.
  [[nodiscard]] bool wants_mass() const { return wants_mass_; }

  // Copies the mass of this sequence's rows from `all`, which has a row for each position from 0
  // on. After a decode step of several tokens, copies the mean over the queries that see a row, as
  // in steps of one token. REQUIRES: both took part in the step and have the same need of mass.
  void TakeMass(const SignalBuffers& all, const SequenceCache& cache);

  // Return the memory to which a layer's nodes must write the signal; empty or null if it is not
  // wanted.
  [[nodiscard]] MassTarget Mass(int layer, int token);
  [[nodiscard]] float* Keys(int layer, int token, int kv_head);
  [[nodiscard]] float* KeysBeforeRope(int layer, int token, int kv_head);
  [[nodiscard]] float* Values(int layer, int token, int kv_head);
  // Returns the memory to which a node must write the query of the step's token `token`,
  // [num_q_heads, head_dim]; null if queries are not wanted or the token is not among the last
  // num_recent_queries.
  [[nodiscard]] float* Query(int layer, int token);
  [[nodiscard]] float* Hidden(size_t index);  // [num_tokens, embed_dim]; see hidden_layers[index]
  // Returns the memory to which a node must write the layer's eviction logits, [num_tokens, kv
  // heads of the layer].
  [[nodiscard]] std::span<float> EvictionLogits(int layer);

  // TokenSignals holds the signals of one token of a step.
  struct TokenSignals {
    std::vector<float> keys, keys_before_rope, values;  // [layers, kv heads, head_dim]
    std::vector<float> eviction_logits;                 // [layers, kv heads]
    std::vector<float> hidden;                          // [hidden layers, embed_dim]
    std::vector<float> mass;       // group after group, [mass arrays, rows of the group]
    std::vector<int> rows;         // [groups]: of `mass`, up to the token's own row
    std::vector<bool> not_finite;  // [layers]
  };
  // Returns the bytes of mass that a decode step keeps for each of its tokens.
  [[nodiscard]] size_t MassBytesPerToken(const SequenceCache& cache) const;
  // Returns the signals of token `token` of the step. REQUIRES: Begin() with Division::kByToken.
  [[nodiscard]] TokenSignals SignalsOf(int token) const;
  // Sets the signals of a step of one token. REQUIRES: Begin() was called for such a step.
  void Set(const TokenSignals& token);
  // Drops the tokens of the step after the first. Allocates no
  // memory. REQUIRES: Begin() with Division::kByToken.
  void KeepFirst();

  [[nodiscard]] const StepSignals& step() const { return step_; }
  [[nodiscard]] GroupSignals Group(int group) const;
  // Discards the history of queries. Must be called after a roll-back, after a failed step and
  // after keys were re-rotated.
  void Forget();
  // Saves the history of queries, the only signal that outlives a step.
  void Save(StateWriter* to) const;
  void Load(StateReader* from);

 private:
  [[nodiscard]] int MassArray(int layer, int q_head) const;
  // Sets where each group, layer and token has its mass in mass_.
  void LayOutMass();
  void KeepFirstMass();
  void BeginCopies(int num_tokens);
  void BeginQueries(int num_tokens);

  // Returns the index of the vector of a token and kv head in arrays [layers][tokens, kv heads of
  // the layer].
  [[nodiscard]] size_t VectorAt(int layer, int token, int kv_head) const {
    return size_t(layout_.StreamOf(layer, 0)) * step_.num_tokens +
           size_t(token) * layout_.NumKvHeads(layer) + kv_head;
  }
  float* RowAt(std::vector<float>* data, int layer, int token, int kv_head) const;

  const ModelShape shape_;
  const AttentionLayout layout_;
  const Granularity granularity_;
  const SignalNeeds needs_;
  StepSignals step_;
  bool wants_mass_ = false;
  int num_mass_tokens_ = 1;  // tokens of the step with mass arrays of their own

  std::vector<int> mass_heads_;         // [groups]: number of mass arrays
  std::vector<float> mass_;             // by token, group after group, [mass_heads, rows]
  std::vector<size_t> group_begin_;     // [groups + 1]: where a group begins in mass_
  std::vector<int> group_rows_;         // [groups]: rows
  std::vector<int> group_new_rows_;     // [groups]: rows that the step appends
  std::vector<float*> mass_targets_;    // by token, [layers, query heads]
  std::unique_ptr<bool[]> not_finite_;  // by token, [layers]: a node found mass that is not finite
  int most_mass_tokens_ = 1;            // for which not_finite_ has room

  std::vector<float> keys_, keys_before_rope_, values_;  // [head_dim] each, as VectorAt() says
  std::vector<float> queries_;          // [layers, num_recent_queries, query heads, head_dim]
  std::vector<float> hidden_;           // [hidden layers, tokens, embed_dim]
  std::vector<float> eviction_logits_;  // in the order of VectorAt()
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_SIGNAL_BUFFERS_H_
