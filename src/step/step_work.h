// StepWork is the work of one step, as plain data: which tokens of which sequences, and where their
// signals go. RunStep() (src/sequence) makes it, and the nodes of the graph read it.
#ifndef EBB_STEP_STEP_WORK_H_
#define EBB_STEP_STEP_WORK_H_

#include <span>
#include <string_view>
#include <vector>

#include "ebb/policy.h"
#include "ebb/signals.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"
#include "src/step/mass_audit.h"
#include "src/step/recurrent_state.h"
#include "src/step/signal_buffers.h"

namespace ebb {

class Sequence;  // src/sequence; nothing in this folder looks into it

// Follower is a sequence that takes the rows which another one computes, and stores them in its T0.
// Both are at the same position, with the same RoPE positions.
struct Follower {
  Sequence* sequence = nullptr;
  SequenceCache* cache = nullptr;  // of `sequence`
  // Points to the signals of `sequence`, which takes the tokens too: its policy decides by all
  // signals of the step, and by the mass of its own rows. Null: it has the tokens already, and the
  // step writes their rows again.
  SignalBuffers* signals = nullptr;
  std::string_view name;  // in errors: "the draft ..."

  [[nodiscard]] bool TakesStep() const { return signals != nullptr; }
};

// SequenceStep is one sequence's part in a step: consecutive tokens of it.
struct SequenceStep {
  // The caller of RunStep() (src/sequence/step.h) sets these members.
  Sequence* sequence = nullptr;
  StepKind kind = StepKind::kDecode;
  std::span<const Token> tokens;
  // Says which tokens' logits are wanted: the last one's or all.
  enum class Logits { kLast, kAll };
  Logits logits = Logits::kLast;
  std::span<const Follower> followers;
  // Points to where the step's signals go; null: to the sequence's own. REQUIRED if followers take
  // the step; of these signals they need only mass.
  SignalBuffers* signals = nullptr;
  // Reads every row although the policy selects. REQUIRED for several tokens of a decode step.
  bool reads_all_rows = false;
  // Give the prompt's chunk that these tokens are a piece of. Kernels and cuts of attention depend
  // on the chunk, so that its division into steps changes no bit. 0 tokens: these tokens are the
  // chunk.
  Position chunk_first = 0;
  int chunk_tokens = 0;

  // RunStep() sets these members in its own copy, for the nodes of the graph, once the rows of the
  // tokens are appended.
  SequenceCache* cache = nullptr;   // of `sequence`
  Selector* selector = nullptr;     // of a single token; null: read every visible row
  bool keeps_cached_t1 = false;     // pages that selective steps have read stay cached
  bool has_expiring_rows = false;   // some rows are visible to its first tokens alone
  RecurrentState* state = nullptr;  // of a model that has one
  int64_t* rows_unread = nullptr;   // counts those that the selector leaves out
  MassAudit* audit = nullptr;       // measures what they would have received; set with `selector`
  Position first = 0;
  int first_token = 0;    // index in StepWork::tokens
  bool in_tiles = false;  // see GoesInTiles() in attention_nodes.h

  [[nodiscard]] int num_tokens() const { return static_cast<int>(tokens.size()); }
  // Visits the signals of the sequence and of its followers.
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
  std::vector<Token> tokens;             // those of sequences in tiles come last
  int num_fold_tokens = 0;               // those of the other sequences, which come first
  std::vector<Position> rope_positions;  // [tokens]
  std::vector<int32_t> output_rows;      // indices of the tokens whose logits are wanted, ascending
  bool deferred_logits = false;  // they are computed afterwards, from StepBackend::outputs()
  // Computes each token with the arithmetic of a decode step of its own.
  bool one_token_at_a_time = false;
};

}  // namespace ebb

#endif  // EBB_STEP_STEP_WORK_H_
