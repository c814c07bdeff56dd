// Makers of the built-in placements; each stands in the file of its name, with its rule and source.
#ifndef EBB_POLICY_PLACEMENTS_H_
#define EBB_POLICY_PLACEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/policy.h"
#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "src/policy/params.h"

namespace ebb {

// Decides from its input alone: there is nothing to save.
class StatelessPlacement : public Placement {
 public:
  Status SaveState(StateWriter*) const final { return OkStatus(); }
  Status LoadState(StateReader*) final { return OkStatus(); }
};

// The user's options that apply to the policy: the table says which ones do.
struct PlacementOptions {
  std::string_view policy = {};      // for messages
  std::string budget_text = {};      // for messages: "64 rows", "65536 bytes (64 rows)"
  Budget budget = {};                // kNone, kRows, kPercent or kBeyond
  std::optional<int> sinks = {};     // tokens
  std::optional<int> window = {};    // tokens
  std::optional<int> interval = {};  // generated tokens
  Params params = {};
  bool scores_tell_room = false;  // ScorerRow::tells_room of the policy's scorer
  int eviction_window = 0;        // of the model; 0: it marks no rows
  int eviction_shift = 1;  // of the model that marks rows: by how many tokens marks come later
  TierSpec tiers = {};     // of the hierarchy alone, as what follows
  RowsAvailable rows_available = {};
};

using PlacementFactory = Result<std::unique_ptr<Placement>> (*)(const PlacementOptions&);

Result<std::unique_ptr<Placement>> MakeBudgetPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeHeavyRecentPlacement(const PlacementOptions& options);
// H2O's rule with other defaults; the table in heavy_recent_placement.cc has them.
Result<std::unique_ptr<Placement>> MakeVatpPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeTovaPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeRkvPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeLazyPlacement(const PlacementOptions& options);
// The prompt is protected, and a quarter of the budget for the newest rows.
Result<std::unique_ptr<Placement>> MakeRecentQuarterPlacement(const PlacementOptions& options);
// MakeRecentQuarterPlacement() without the prompt; where scores tell room, rows below 0 go in any
// case.
Result<std::unique_ptr<Placement>> MakeSegmentPlacement(const PlacementOptions& options);
// As MakeSegmentPlacement(), with the prompt protected.
Result<std::unique_ptr<Placement>> MakePromptSegmentPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeSinksWindowPlacement(const PlacementOptions& options);
// The same, every 64 steps unless an interval is given.
Result<std::unique_ptr<Placement>> MakeLaggedSinksWindowPlacement(const PlacementOptions& options);
// Makes the placement of models that mark rows: it evicts a row whose score is below 0 once the row
// is as many tokens old as the window, whose length the model or PlacementOptions::window sets.
Result<std::unique_ptr<Placement>> MakeDelayedPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeHierarchyPlacement(const PlacementOptions& options);
// For T2Rows::kOld.
[[nodiscard]] Result<std::unique_ptr<Placement>> MakeOldRowsPlacement(
    const PlacementOptions& options);
// For TierSpec::t1_read.
Result<std::unique_ptr<Placement>> MakePagedPlacement(const PlacementOptions& options);
// Null: nothing ever moves.
Result<std::unique_ptr<Placement>> MakeNoPlacement(const PlacementOptions& options);

// The rows that may stay of `base` rows: the budget's rows, or its percent of the base, rounded up
// (so that the evicted share is rounded down, as in Algorithm 1 of "Not All Thoughts Need HBM").
// REQUIRES: kRows, kPercent or kBeyond.
[[nodiscard]] size_t RowsAllowed(const Budget& budget, size_t base);
// "rows=64", "percent=25", "beyond=64": for names.
[[nodiscard]] std::string BudgetKeyValue(const Budget& budget);
// InvalidArgument, naming the policy, when there is none.
[[nodiscard]] Status NeedsBudget(const PlacementOptions& options);
// Whether a decision falls on this step: on each prefill chunk, on the step of each `interval`-th
// generated token.
[[nodiscard]] bool OnInterval(const PlacementInput& input, int interval);

// Returns "score 0.0123, rank 31 of 204 from the lowest", for Placement::Explain(). `among` holds
// the rows that the placement compares. REQUIRES: they hold the row.
[[nodiscard]] std::string ScoreText(std::span<const float> scores, std::span<const RowRange> among,
                                    size_t row);

void AppendEvictions(std::span<const uint32_t> rows, std::vector<Move>* moves);

}  // namespace ebb

#endif  // EBB_POLICY_PLACEMENTS_H_
