// StepWork is the work of one step, as plain data: the tokens to compute, by sequence, and the
// memory for their signals. RunStep() (src/sequence) makes it, and the nodes of the graph read it.
#ifndef EBB_STEP_WORK_STEP_WORK_H_
#define EBB_STEP_WORK_STEP_WORK_H_

#include <span>
#include <string_view>
#include <vector>

#include "ebb/policy.h"
#include "ebb/signals.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"
#include "src/step/work/mass_audit.h"
#include "src/step/work/recurrent_state.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {

class ComputedTokens;  // this and Sequence are defined in src/sequence; opaque in this folder
class Sequence;

// Follower is a sequence that stores, in its own T0, rows that another sequence's step computes.
// Both are at the same position, with the same RoPE positions.
struct Follower {
  Sequence* sequence = nullptr;
  SequenceCache* cache = nullptr;  // the cache of `sequence`
  // Points to the signals of `sequence` if the step's tokens are appended to it: its policy then
  // decides by the step's signals, with the mass of its own rows. Null if it has the tokens
  // already: the step only writes their rows again.
  SignalBuffers* signals = nullptr;
  std::string_view name;  // for errors, such as "the draft"

  [[nodiscard]] bool TakesStep() const { return signals != nullptr; }
};

// SequenceStep is the part of one sequence in a step: consecutive tokens of the sequence.
struct SequenceStep {
  // The caller of RunStep() (src/sequence/step.h) sets these members.
  Sequence* sequence = nullptr;
  StepKind kind = StepKind::kDecode;
  std::span<const Token> tokens;
  // Selects the tokens of the sequence whose logits are computed: the last one or all.
  enum class Logits { kLast, kAll };
  Logits logits = Logits::kLast;
  std::span<const Follower> followers;
  // Points to the memory for the step's signals; null: to the sequence's own. REQUIRED if the step
  // has followers, for which these signals need only have mass.
  SignalBuffers* signals = nullptr;
  // Receives the tokens after the first, which the step computes and the sequence does not take;
  // null: the sequence takes all tokens.
  ComputedTokens* ahead = nullptr;
  // Holds the hidden rows that a step of a head reads, [embed_dim] for each token: that of the
  // token before it. REQUIRED for such a model, whose steps have one sequence.
  std::span<const float> hidden_rows;
  // If true, the step stores rows from features, which hidden_rows holds, and computes no logits
  // (DecoderGraphOptions::injects).
  bool injects = false;
  bool sees_whole_step = false;  // each token sees the rows of all of the step's tokens
  // If true, the step reads every row, even if the policy has a selector. REQUIRED for a decode
  // step of several tokens.
  bool reads_all_rows = false;
  // Give the chunk of a prompt that contains these tokens; 0 tokens: these tokens are the chunk.
  // Kernels and the division of attention depend on the chunk, so that dividing it into steps
  // changes no bit.
  Position chunk_first = 0;
  int chunk_tokens = 0;

  // RunStep() sets the members from here on in its own copy, for the nodes of the graph, once the
  // rows of the tokens are appended.
  SequenceCache* cache = nullptr;   // the cache of `sequence`
  Selector* selector = nullptr;     // used with a single token; null: read every visible row
  bool keeps_cached_t1 = false;     // keep pages cached that selective steps have read
  bool has_expiring_rows = false;   // some rows are visible only to the first tokens
  RecurrentState* state = nullptr;  // null if the model has none
  int64_t* rows_unread = nullptr;   // counter of the rows that the selector leaves out
  MassAudit* audit = nullptr;       // measures unread mass; set with `selector`
  Position first = 0;
  int first_token = 0;    // index in StepWork::tokens
  bool in_tiles = false;  // see GoesInTiles() in attention_nodes.h

  [[nodiscard]] int num_tokens() const { return static_cast<int>(tokens.size()); }
  // Returns how many of the tokens become part of the sequence.
  [[nodiscard]] int num_taken() const { return ahead != nullptr ? 1 : num_tokens(); }
  // Calls visit(signals) for the sequence and for its followers.
  template <typename Visitor>
  void ForEachSignals(const Visitor& visit) const {
    visit(signals);
    for (const Follower& follower : followers) {
      if (follower.TakesStep()) visit(follower.signals);
    }
  }
};

struct StepWork {
  std::vector<SequenceStep> sequences;
  std::vector<Token> tokens;             // tokens of sequences in tiles come last
  int num_fold_tokens = 0;               // tokens of the other sequences, which come first
  std::vector<Position> rope_positions;  // [tokens]
  std::vector<int32_t> output_rows;      // indices of the tokens whose logits are wanted, ascending
  bool deferred_logits = false;          // logits come later, from StepBackend::outputs()
  // If true, computes each token with the arithmetic of a decode step of one token.
  bool one_token_at_a_time = false;
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_STEP_WORK_H_
