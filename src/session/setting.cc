#include <optional>
#include <utility>

#include "ebb/engine.h"
#include "ebb/recent_windows.h"

namespace ebb {

T1Place DefaultT1(const DeviceSpec& device) {
  return device.kind == DeviceKind::kCpu ? T1Place::kFile : T1Place::kHost;
}

PolicySpec DefaultDraft(PolicySpec spec) {
  if (spec.tiers.has_value() || spec.budget.unit != Budget::Unit::kNone || spec.name != "full") {
    return spec;
  }
  spec.name = "streaming";
  if (!spec.sinks.has_value()) spec.sinks = kDraftSinks;
  if (!spec.window.has_value()) spec.window = kDraftWindow;
  return spec;
}

void ApplyDefaults(const ExplicitOptions& given, EngineOptions* engine, SessionOptions* session) {
  std::optional<TierSpec>& placed = session->policy.tiers;
  if (!engine->tiers.has_value()) engine->tiers = placed;
  if (session->lossless.has_value()) {
    if (!engine->tiers.has_value()) engine->tiers.emplace();
    if (!given.tiers) placed.reset();
  }
  if (!given.t1) {
    const T1Place place = DefaultT1(engine->device);
    if (engine->tiers.has_value()) engine->tiers->t1 = place;
    if (placed.has_value()) placed->t1 = place;
  }
  if (session->lossless.has_value() && !given.policy) {
    session->policy = DefaultDraft(std::move(session->policy));
  }
}

}  // namespace ebb
