// What a step did and where its time went, for front ends, benchmarks and tests.
#ifndef EBB_STEP_REPORT_H_
#define EBB_STEP_REPORT_H_

#include <cstdint>
#include <optional>

#include "ebb/accounting.h"
#include "ebb/types.h"

namespace ebb {

// Where the time of a step's graph goes, as its first thread sees it: each node's time, waiting for
// the other threads at its beginning included.
struct StepCosts {
  double embedding_seconds = 0;  // looking up the tokens' embeddings
  double matmul_seconds = 0;     // products with weights
  double attention_seconds = 0;  // storing and reading rows; waiting for T1's file left out
  double other_seconds = 0;      // norms, RoPE, activations, sums; starting and ending the graph
};

struct StepReport {
  StepKind kind = StepKind::kDecode;
  int num_tokens = 0;
  int64_t rows_evicted = 0;  // by the placement, or by windows, after this step
  int64_t rows_unread = 0;   // visible, but left out by a selector
  // Making rows and places, reading T1 and the graph; a verifying step's logits come later.
  double compute_seconds = 0;
  double policy_seconds = 0;   // observe, place, move, remove, compact, sort
  double io_wait_seconds = 0;  // of compute_seconds: nothing to do until T1's file was read
  double select_seconds = 0;   // of compute_seconds: selectors chose what to read
  MoveAccounting moves;        // by the placement, after this step
  bool mass_computed = false;
  std::optional<StepCosts> costs;  // when they were asked for
};

}  // namespace ebb

#endif  // EBB_STEP_REPORT_H_
