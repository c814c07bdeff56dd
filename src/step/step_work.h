// The work of one step, as plain data: which tokens of which sequences, and where their
// signals go. Made by a step, read by the nodes of the graph.
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

// A sequence that takes the rows which another one computes. Both are at the same position, and its
// keys stand at the same places. Rows are stored in its T0.
struct Follower {
  Sequence* sequence = nullptr;
  SequenceCache* cache = nullptr;  // of `sequence`
  // The signals of `sequence`: it takes the tokens too, and its policy decides by all signals of
  // the step, except mass, which is that of its own rows. Null: it has the tokens already, and
  // their rows are written again.
  SignalBuffers* signals = nullptr;
  std::string_view name;  // in errors: "the draft ..."

  [[nodiscard]] bool TakesStep() const { return signals != nullptr; }
};

// One sequence's part in a step: consecutive tokens of it.
struct SequenceStep {
  // Set by the caller of RunStep() (src/sequence/step.h).
  Sequence* sequence = nullptr;
  StepKind kind = StepKind::kDecode;
  std::span<const Token> tokens;
  // The tokens whose logits are wanted: the last one or all.
  enum class Logits { kLast, kAll };
  Logits logits = Logits::kLast;
  std::span<const Follower> followers;
  // The destination of the step's signals; null: the sequence's own. REQUIRED for followers that
  // take the step; these need no others of it than mass.
  SignalBuffers* signals = nullptr;
  // Reads every row although the policy selects. REQUIRED for several tokens of a decode step.
  bool reads_all_rows = false;
  // The prompt's chunk that these tokens are a piece of. Kernels and cuts of attention follow the
  // chunk, so that how it is divided into steps changes no bit. 0 tokens: these are the chunk.
  Position chunk_first = 0;
  int chunk_tokens = 0;

  // Set by RunStep() in its own copy, once the rows of the tokens are appended, for the nodes of
  // the graph.
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
  // Each token goes through the arithmetic of a decode step of its own.
  bool one_token_at_a_time = false;
};

}  // namespace ebb

#endif  // EBB_STEP_STEP_WORK_H_
