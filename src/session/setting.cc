#include "ebb/engine.h"
#include "ebb/recent_windows.h"

namespace ebb {

PolicySpec DefaultDraft(PolicySpec spec) {
  if (spec.tiers.has_value() || spec.budget.unit != Budget::Unit::kNone || spec.name != "full") {
    return spec;
  }
  spec.name = "streaming";
  if (!spec.sinks.has_value()) spec.sinks = kDraftSinks;
  if (!spec.window.has_value()) spec.window = kDraftWindow;
  return spec;
}

}  // namespace ebb
