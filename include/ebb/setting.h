// A setting, made whole: what a user left open is chosen here, so that every front end chooses
// alike. A front end fills the options in with what its user said, and tells what that was.
//
//   EngineOptions engine;
//   SessionOptions session = {.policy = {.tiers = tiers}, .lossless = LosslessOptions()};
//   CompleteSetting({.t1 = true}, &engine, &session);
#ifndef EBB_SETTING_H_
#define EBB_SETTING_H_

#include "ebb/device.h"
#include "ebb/engine.h"
#include "ebb/policy.h"
#include "ebb/tiers.h"

namespace ebb {

// Where T1 lies where nobody said: in a file; beside a device, in the host's memory.
[[nodiscard]] T1Place DefaultT1(const DeviceSpec& device);

// The policy that drafts a lossless generation where nobody named one: the first 20 tokens and the
// last 512, unless `spec` has sinks and a window of its own. Tiers, a budget or another policy than
// the full cache draft as they are.
[[nodiscard]] PolicySpec DefaultDraft(PolicySpec spec);

// What the user said of a setting; what is false may be chosen.
struct SettingGiven {
  bool policy = false;  // the policy, or what drafts
  bool t1 = false;      // where T1 lies
  bool tiers = false;   // another part of a TierSpec: a share, a cap on T0, T2
};

// Chooses what was not given: the tiers of an engine that has none are the session's; where T1
// lies; for a lossless session a T1 that keeps every row, and the policy that drafts. Tiers that
// only say where T1 lies place no rows of a draft: a lossless session's policy loses them.
// REQUIRES: where the engine and the session's policy both have tiers, they are the same.
void CompleteSetting(const SettingGiven& given, EngineOptions* engine, SessionOptions* session);

}  // namespace ebb

#endif  // EBB_SETTING_H_
