#include <optional>
#include <utility>

#include "ebb/engine.h"

namespace ebb {

T1Place DefaultT1(const DeviceSpec& device) {
  return device.kind == DeviceKind::kCpu ? T1Place::kFile : T1Place::kHost;
}

std::optional<TierSetting> TiersOf(const EngineOptions& engine, const SessionOptions& session) {
  if (!session.policy.tiers.has_value()) return std::nullopt;
  TierSetting tiers = {engine.tiers.value_or(EngineTiers()), *session.policy.tiers};
  EngineTiers& of_engine = tiers.engine;
  if (!of_engine.t1.has_value()) of_engine.t1 = DefaultT1(engine.device);
  double share = kDefaultT0Share;
  if (std::exchange(of_engine.sessions_share_caps, false)) {
    // A session may have all of T0 as long as no other one needs it.
    if (of_engine.t0_cap_bytes > 0) share = 1;
    of_engine.t0_cap_bytes = of_engine.t1_cap_bytes = 0;
  }
  if (tiers.shares.t0_share.has_value()) of_engine.t0_cap_bytes = 0;
  if (of_engine.t0_cap_bytes == 0) tiers.shares.t0_share = tiers.shares.t0_share.value_or(share);
  return tiers;
}

void SetTiers(const std::optional<TierSetting>& tiers, EngineOptions* engine,
              SessionOptions* session) {
  engine->tiers.reset();
  session->policy.tiers.reset();
  if (!tiers.has_value()) return;
  engine->tiers = tiers->engine;
  session->policy.tiers = tiers->shares;
}

}  // namespace ebb
