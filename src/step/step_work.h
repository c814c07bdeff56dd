// The work of one step, as plain data: which tokens of which sequences, and where their
// signals go. Made by a step, read by the graph's nodes.
#ifndef EBB_STEP_STEP_WORK_H_
#define EBB_STEP_STEP_WORK_H_

#include <span>
#include <vector>

#include "ebb/policy.h"
#include "ebb/signals.h"
#include "ebb/types.h"
#include "src/kv/sequence_cache.h"
#include "src/step/recurrent_state.h"
#include "src/step/signal_buffers.h"

namespace ebb {

// Another cache that takes the step's rows too, where it has their positions. Its rows lie in T0,
// and stand at the same places as far as RoPE is concerned.
struct RowFollower {
  SequenceCache* cache = nullptr;
  SignalBuffers* signals = nullptr;  // take all but mass; null: rows only
};

// Consecutive tokens of one sequence; their rows are appended to the cache already.
struct SequenceStep {
  SequenceCache* cache = nullptr;
  SignalBuffers* signals = nullptr;
  Selector* selector = nullptr;     // of a single token; null: read every visible row
  bool keeps_cached_t1 = false;     // pages that selective steps have read stay cached
  bool has_expiring_rows = false;   // some rows are visible to its first tokens alone
  RecurrentState* state = nullptr;  // of a model that has one
  int64_t* rows_unread = nullptr;   // counts those that the selector leaves out
  Position first = 0;
  int num_tokens = 0;
  // The prompt's chunk that these tokens are a piece of. Kernels and cuts of attention follow the
  // chunk, so that how it is divided into steps changes no bit.
  Position chunk_first = 0;
  int chunk_tokens = 0;
  int first_token = 0;                     // index in StepWork::tokens
  bool in_tiles = false;                   // see GoesInTiles() in attention_nodes.h
  std::span<const RowFollower> followers;  // of StepWork::followers

  // Visits the signals of the sequence and of its followers.
  template <typename Visitor>
  void ForEachSignals(const Visitor& visit) const {
    visit(signals);
    for (const RowFollower& follower : followers) {
      if (follower.signals != nullptr) visit(follower.signals);
    }
  }
};

struct StepWork {
  std::vector<SequenceStep> sequences;
  std::vector<RowFollower> followers;
  std::vector<Token> tokens;             // those of sequences in tiles come last
  int num_fold_tokens = 0;               // those of the other sequences, which come first
  std::vector<Position> rope_positions;  // [tokens]
  std::vector<int32_t> output_rows;      // indices of the tokens whose logits are wanted, ascending
  bool deferred_logits = false;  // they are computed afterwards, from GraphRunner::outputs()
  // Each token goes through the arithmetic of a decode step of its own.
  bool one_token_at_a_time = false;
};

}  // namespace ebb

#endif  // EBB_STEP_STEP_WORK_H_
