// Forecasts how many rows of one sequence each tier will hold, from the counts of the hierarchy's
// decisions (tier_plan.h). It is pure arithmetic, for `ebb fit` and Engine::CountNeeds().
#ifndef EBB_POLICY_TIER_FORECAST_H_
#define EBB_POLICY_TIER_FORECAST_H_

#include <cstddef>
#include <optional>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "src/policy/tier_plan.h"

namespace ebb {

struct ForecastRequest {
  TierSetting tiers;             // with the caps of this sequence
  RowsAvailable rows_available;  // under them
  Protected protected_rows = Protected::kStay;
  size_t prompt_tokens = 0;  // given, which never leave full precision
  size_t most_tokens = 0;    // the given ones among them
  // Evicts rows before the tiers place those that stay; null: nothing does. Must outlive the
  // request.
  const Placement* retention = nullptr;
  size_t chunk_tokens = 512;  // of a prompt, that are read at once
  int sinks = kDefaultSinks;
  int window = kDefaultWindow;
  int interval = kDefaultInterval;
};

// RowCounts counts the rows of each (layer, kv head).
struct RowCounts {
  size_t t0 = 0;
  size_t t1 = 0;
  size_t t2 = 0;
};

struct RowsOverTime {
  RowCounts last;   // after the last token
  RowCounts peaks;  // of each tier by itself
};

// Simulates the decisions from the prompt to the last token and returns the rows in each tier.
// Where retention and tiers decide apart, counts the most rows that either allows a tier. Errors:
// T0Full if the caps do not hold the rows that must stay in full precision.
[[nodiscard]] Result<RowsOverTime> ForecastRows(const ForecastRequest& request);

// Returns the rows without tiers: all of them in T0.
[[nodiscard]] RowsOverTime RetainedRows(const ForecastRequest& request);

// Returns the fewest rows that T0 holds once the last token is there, even with a T0 share of 0:
// the protected rows and the rows that arrive between two decisions. A cap on T0 limits the result.
[[nodiscard]] size_t FloorRows(const ForecastRequest& request);

// Returns the rows of a group that T0 must hold at once during a step with selective reading of T1,
// the step's own rows included; nullopt if T1 is not read selectively.
[[nodiscard]] std::optional<size_t> RowsOfSelectiveStep(const TierSetting& tiers,
                                                        size_t most_tokens);

}  // namespace ebb

#endif  // EBB_POLICY_TIER_FORECAST_H_
