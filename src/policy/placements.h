// Declares the makers of the built-in placements. Each is in the .cc file of its name, whose first
// comment gives the rule and its source.
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
#include "src/policy/tier_plan.h"

namespace ebb {

// StatelessPlacement decides from its input alone, so that there is no state to save.
class StatelessPlacement : public Placement {
 public:
  Status SaveState(StateWriter*) const final { return OkStatus(); }
  Status LoadState(StateReader*) final { return OkStatus(); }
};

// PlacementOptions holds the user's options; the policy table (PolicyRow::options) says which of
// them a policy accepts.
struct PlacementOptions {
  std::string_view policy = {};      // for messages
  std::string budget_text = {};      // for messages: "64 rows", "64 KiB (64 rows)"
  Budget budget = {};                // kNone, kRows, kPercent or kBeyond
  std::optional<int> sinks = {};     // tokens
  std::optional<int> window = {};    // tokens
  std::optional<int> interval = {};  // generated tokens
  Params params = {};
  bool negative_means_no_room = false;  // ScorerRow::negative_means_no_room of the policy's scorer
  int eviction_window = 0;              // tokens; 0: the model marks no rows
  int eviction_shift = 1;               // tokens by which a model's mark comes after its row
  double expected_compression = 1;      // as in PolicyContext
  int decided_after = 0;                // DecidedAfter() of the retention above a layout
  TierSetting tiers = {};               // only for the hierarchy, like the members below
  RowsAvailable rows_available = {};
  Protected protected_rows = Protected::kStay;
};

using PlacementFactory = Result<std::unique_ptr<Placement>> (*)(const PlacementOptions&);

Result<std::unique_ptr<Placement>> MakeBudgetPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeHeavyRecentPlacement(const PlacementOptions& options);
// Makes H2O's placement with other defaults; so do the next three makers. kRules in
// heavy_recent_placement.cc lists the defaults.
Result<std::unique_ptr<Placement>> MakeVatpPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeTovaPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeRkvPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeLazyPlacement(const PlacementOptions& options);
// Makes a placement that protects the prompt and keeps a quarter of the budget for the newest rows.
Result<std::unique_ptr<Placement>> MakeRecentQuarterPlacement(const PlacementOptions& options);
// Makes the placement of MakeRecentQuarterPlacement(), but without protecting the prompt. If
// negative_means_no_room, it evicts rows with scores below 0 even if the budget has room for them.
Result<std::unique_ptr<Placement>> MakeSegmentPlacement(const PlacementOptions& options);
// Makes the placement of MakeSegmentPlacement(), and protects the prompt.
Result<std::unique_ptr<Placement>> MakePromptSegmentPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeSinksWindowPlacement(const PlacementOptions& options);
// Makes the placement of MakeSinksWindowPlacement() with a default interval of 64 steps.
Result<std::unique_ptr<Placement>> MakeLaggedSinksWindowPlacement(const PlacementOptions& options);
// Makes the placement of models that mark rows: it evicts a row whose score is below 0 once the row
// is as many tokens old as the window, whose length the model or PlacementOptions::window sets.
Result<std::unique_ptr<Placement>> MakeDelayedPlacement(const PlacementOptions& options);
Result<std::unique_ptr<Placement>> MakeHierarchyPlacement(const PlacementOptions& options);
// Makes the placement of T2Rows::kOld, which compresses rows by position alone.
[[nodiscard]] Result<std::unique_ptr<Placement>> MakeOldRowsPlacement(
    const PlacementOptions& options);
// Makes the placement for selective reading (TierShares::t1_read), which moves whole pages to T1 by
// position alone.
Result<std::unique_ptr<Placement>> MakePagedPlacement(const PlacementOptions& options);
// Returns a placement in which `retention` evicts rows and `layout` places those that stay. A null
// placement does nothing.
[[nodiscard]] std::unique_ptr<Placement> MakeStackedPlacement(std::unique_ptr<Placement> retention,
                                                              std::unique_ptr<Placement> layout,
                                                              bool has_caps);
// Returns null: rows never move.
Result<std::unique_ptr<Placement>> MakeNoPlacement(const PlacementOptions& options);

// Returns how many of `base` rows may stay: the budget's rows, or its percentage of `base`, rounded
// up (so that the evicted share is rounded down, as in Algorithm 1 of "Not All Thoughts Need HBM").
// REQUIRES: the unit is kRows, kPercent or kBeyond.
[[nodiscard]] size_t RowsAllowed(const Budget& budget, size_t base);
// Returns the budget as it appears in names of placements: "rows=64", "percent=25", "beyond=64".
[[nodiscard]] std::string BudgetKeyValue(const Budget& budget);
// Returns InvalidArgument, naming the policy, if the options have no budget.
[[nodiscard]] Status NeedsBudget(const PlacementOptions& options);
// Returns whether the policy decides after this step: after each prefill chunk, and after the
// decode step of each `interval`-th generated token.
[[nodiscard]] bool OnInterval(const PlacementInput& input, int interval);

// Returns "score 0.0123, rank 31 of 204 from the lowest", for Placement::Explain(). `among` holds
// the rows that the placement compares. REQUIRES: they hold the row.
[[nodiscard]] std::string ScoreText(std::span<const float> scores, std::span<const RowRange> among,
                                    size_t row);

void AppendEvictions(std::span<const uint32_t> rows, std::vector<Move>* moves);

}  // namespace ebb

#endif  // EBB_POLICY_PLACEMENTS_H_
