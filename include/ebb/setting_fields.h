// Lists the fields of a session's settings in one place, for all code that saves, compares, hashes
// or prints settings.
//
// Each list takes its struct apart by structured bindings, so that a field which is added to the
// struct does not compile until it is listed here.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SETTING_FIELDS_H_
#define EBB_SETTING_FIELDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/engine.h"
#include "ebb/policy.h"
#include "ebb/tiers.h"

namespace [[gnu::visibility("default")]] ebb {

// Calls visit(name, field) for each field of a TierSetting or const TierSetting except two that
// change no result of a session: t1_path and sessions_share_caps. Session files hold the fields in
// this order.
template <typename Tiers, typename Visit>
void VisitTierFields(Tiers& tiers, Visit&& visit) {
  auto& [engine, shares] = tiers;
  auto& [t0_cap_bytes, t1, t1_path, t1_cap_bytes, t2_type, sessions_share_caps] = engine;
  auto& [t0_share, t1_read, t1_mass, t1_rows, t1_reuse, t2_rows, t2_first, t2_newest, t2_share,
         evict_share, evict_beyond_caps, evict_of] = shares;
  static_cast<void>(t1_path);
  static_cast<void>(sessions_share_caps);
  visit("t0_share", t0_share);
  visit("t0_cap_bytes", t0_cap_bytes);
  visit("t1", t1);
  visit("t1_cap_bytes", t1_cap_bytes);
  visit("t1_read", t1_read);
  visit("t1_mass", t1_mass);
  visit("t1_rows", t1_rows);
  visit("t1_reuse", t1_reuse);
  visit("t2_rows", t2_rows);
  visit("t2_first", t2_first);
  visit("t2_newest", t2_newest);
  visit("t2_share", t2_share);
  visit("t2_type", t2_type);
  visit("evict_share", evict_share);
  visit("evict_of", evict_of);
  visit("evict_beyond_caps", evict_beyond_caps);
}

// Calls visit(name, field) for each field of a policy except `tiers`; VisitTierFields() visits the
// fields of the tiers.
template <typename Visit>
void VisitPolicyFields(const PolicySpec& policy, Visit&& visit) {
  const auto& [name, params, scorer, budget, sinks, window, interval, granularity, most_tokens,
               read, tiers, seed] = policy;
  static_cast<void>(tiers);
  visit("name", name);
  visit("params", params);
  visit("scorer", scorer);
  visit("budget", budget);
  visit("sinks", sinks);
  visit("window", window);
  visit("interval", interval);
  visit("granularity", granularity);
  visit("most_tokens", most_tokens);
  visit("read", read);
  visit("seed", seed);
}

// Returns a policy as text, without the fields that are not set: "h2o:heavy=64, budget 25%, sinks
// 4, seed 0".
[[nodiscard]] std::string PolicyText(const PolicySpec& policy);

// Returns a key of a setting. Two settings have equal keys only if sessions of one engine compute
// the same rows of a prompt under both and hold them in the same tiers. For a lossless session the
// key covers both of its caches; how it drafts changes no row.
[[nodiscard]] std::string SettingKey(const SessionOptions& options);

// Returns the value of --t1-read that reads T1 so: "all", or "select:mass=0.9,rows=512,reuse=0.8".
[[nodiscard]] std::string T1ReadText(const std::optional<TierShares>& shares);

// TierOption is an option of the command line and its value: {"--t1", "host"}.
using TierOption = std::pair<std::string_view, std::string>;
// Returns the options that make these tiers. Leaves out --t0 if it has no effect (CheckT0Share()),
// and options other than --t0 and --t1 that are at their defaults.
[[nodiscard]] std::vector<TierOption> TierOptions(const TierSetting& tiers);

// T0Share selects whether TierOptionsText() prints T0's share, which changes no bit.
enum class T0Share { kShown, kHidden };
// Returns TierOptions() as one text, without caps, folders and the parts of --t1-read: "--t0 30%
// --t1 host --t2 50%:int8 --evict 10%".
[[nodiscard]] std::string TierOptionsText(TierSetting tiers, T0Share t0 = T0Share::kShown);

// Checks tiers for whose T0 a user gave a share. Errors: the share has no effect, since T2 holds
// all old rows.
[[nodiscard]] Status CheckT0Share(const TierShares& shares);

}  // namespace ebb

#endif  // EBB_SETTING_FIELDS_H_
