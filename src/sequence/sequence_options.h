// Options of a sequence. SessionOptions (ebb/engine.h) says more on each.
#ifndef EBB_SEQUENCE_SEQUENCE_OPTIONS_H_
#define EBB_SEQUENCE_SEQUENCE_OPTIONS_H_

#include <functional>
#include <optional>
#include <span>

#include "ebb/engine.h"
#include "ebb/signals.h"
#include "ebb/tiers.h"

namespace ebb {

struct SequenceOptions {
  int context = 0;  // tokens
  PastContext past_context = PastContext::kRefuse;
  std::optional<TierSpec> tiers;  // the policy's
  SignalNeeds extra_signals;
  std::function<void(int group, std::span<const Position> positions, const GroupSignals& signals,
                     const StepSignals& step)>
      on_signals;
  bool keeps_ledger = false;
  bool reports_costs = false;
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_SEQUENCE_OPTIONS_H_
