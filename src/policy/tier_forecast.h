// How many rows each tier will hold of one sequence, foretold by the counts of the hierarchy's
// decisions (tier_plan.h). Pure arithmetic: what `ebb fit` and Engine::CountNeeds() count with.
#ifndef EBB_POLICY_TIER_FORECAST_H_
#define EBB_POLICY_TIER_FORECAST_H_

#include <cstddef>
#include <optional>

#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"

namespace ebb {

struct ForecastRequest {
  TierSpec tiers;                // with the caps of this sequence
  RowsAvailable rows_available;  // under them
  size_t prompt_tokens = 0;      // given, which never leave full precision
  size_t most_tokens = 0;        // the given ones among them
  int sinks = kDefaultSinks;
  int window = kDefaultWindow;
  int interval = kDefaultInterval;
};

// Rows of each (layer, kv head).
struct RowCounts {
  size_t t0 = 0;
  size_t t1 = 0;
  size_t t2 = 0;
};

struct RowsOverTime {
  RowCounts last;   // after the last token
  RowCounts peaks;  // of each tier by itself
};

// Follows the decisions from the prompt to the last token. T0Full when the caps do not
// hold what must stay in full precision.
[[nodiscard]] Result<RowsOverTime> ForecastRows(const ForecastRequest& request);

// Rows that T0 holds at least once the last token is there, whatever share of the others it is
// given: protected rows, and those that come between two decisions. Under a cap on T0 at most as
// many as the cap holds.
[[nodiscard]] size_t FloorRows(const ForecastRequest& request);

// The rows of a group that T0 must hold at once for selective reading of T1, those of a step
// included; nothing for other tiers, and without a T1.
[[nodiscard]] std::optional<size_t> RowsOfSelectiveStep(const TierSpec& tiers, size_t most_tokens);

}  // namespace ebb

#endif  // EBB_POLICY_TIER_FORECAST_H_
