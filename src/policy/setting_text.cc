#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "ebb/recent_windows.h"
#include "ebb/setting_fields.h"

namespace ebb {
namespace {

std::string ValueText(const std::string& text) { return text; }
std::string ValueText(const Budget& budget) {
  return budget.unit == Budget::Unit::kNone ? "" : FormatBudget(budget);
}
std::string ValueText(Granularity granularity) { return std::string(GranularityName(granularity)); }
std::string ValueText(const std::map<std::string, std::string>& params) {
  std::string text;
  for (const auto& [name, value] : params)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text;
}
template <typename Number>
requires std::is_arithmetic_v<Number> std::string ValueText(Number number) {
  return fmt::format("{}", number);
}
template <typename Choice>
requires std::is_enum_v<Choice> std::string ValueText(Choice choice) {
  return fmt::format("{}", static_cast<int>(choice));
}
template <typename T>
std::string ValueText(const std::optional<T>& value) {
  return value.has_value() ? ValueText(*value) : "";
}

}  // namespace

std::string PolicyText(const PolicySpec& policy) {
  std::string text;
  VisitPolicyFields(policy, [&](std::string_view name, const auto& field) {
    const std::string value = ValueText(field);
    if (value.empty()) return;
    if (name == "name") {
      text = value;
    } else if (name == "params") {
      text += ":" + value;
    } else {
      text += fmt::format(", {} {}", name, value);
    }
  });
  return text;
}

// Returns a text that is equal for equal options. Each value follows its length, so that no value
// can imitate another field.
std::string SettingKey(const SessionOptions& options) {
  const auto& [policy, make_policy, foresight, context, past_context, extra_signals, on_signals,
               lossless, speculation, least_guesses, most_guesses, guesses_inexactly,
               t0_floor_bytes, explained, ledger, step_costs] = options;
  std::string key;
  const auto add = [&](std::string_view name, const auto& field) {
    const std::string value = ValueText(field);
    key += fmt::format("{}={}:{};", name, value.size(), value);
  };
  VisitPolicyFields(policy, add);
  if (policy.tiers.has_value()) {
    const TierSetting tiers = {.shares = *policy.tiers};
    VisitTierFields(tiers, add);
  }
  add("context", context);
  add("past_context", past_context);
  add("lossless", lossless.has_value());
  return key;
}

std::string T1ReadText(const std::optional<TierShares>& shares) {
  if (!ReadsSelectively(shares)) return "all";
  const std::string rows = shares->t1_rows > 0 ? fmt::format(",rows={}", shares->t1_rows) : "";
  const std::string reuse =
      shares->t1_reuse > 0 ? fmt::format(",reuse={:.6g}", shares->t1_reuse) : "";
  return fmt::format("select:mass={:.6g}{}{}", shares->t1_mass, rows, reuse);
}

std::vector<TierOption> TierOptions(const TierSetting& tiers) {
  const auto& [engine, shares] = tiers;
  const auto percent = [](double share) { return fmt::format("{:.6g}%", share * 100); };
  std::vector<TierOption> options;
  if (engine.t0_cap_bytes > 0) {
    options.emplace_back("--t0", fmt::format("{}", engine.t0_cap_bytes));
  } else if (CheckT0Share(shares).ok()) {
    options.emplace_back("--t0", percent(shares.t0_share.value_or(kDefaultT0Share)));
  }
  const std::string folder = engine.t1_path.empty() ? "" : ":" + engine.t1_path;
  const std::string cap = engine.t1_cap_bytes > 0 ? fmt::format(",{}", engine.t1_cap_bytes) : "";
  const std::string_view place = T1PlaceName(engine.t1.value_or(T1Place::kFile));
  options.emplace_back("--t1", fmt::format("{}{}{}", place, folder, cap));
  if (HasT2(shares)) {
    const std::string rows = CompressesOldRows(shares) ? "old" : percent(shares.t2_share);
    const CompressedType type = engine.t2_type.value_or(kDefaultT2Type);
    std::string text = fmt::format("{}:{}", rows, CompressedTypeName(type));
    const TierShares usual;
    if (shares.t2_first != usual.t2_first) text += fmt::format(",first={}", shares.t2_first);
    if (shares.t2_newest != usual.t2_newest) text += fmt::format(",newest={}", shares.t2_newest);
    options.emplace_back("--t2", std::move(text));
  }
  if (ReadsSelectively(shares)) options.emplace_back("--t1-read", T1ReadText(shares));
  if (shares.evict_share > 0) {
    options.emplace_back("--evict", percent(shares.evict_share));
  } else if (shares.evict_beyond_caps) {
    options.emplace_back("--evict", "caps");
  }
  if (shares.evict_share > 0 && shares.evict_of == EvictOf::kAlive) {
    options.emplace_back("--evict-of", "alive");
  }
  return options;
}

std::string TierOptionsText(TierSetting tiers, T0Share t0) {
  tiers.engine.t0_cap_bytes = tiers.engine.t1_cap_bytes = 0;
  tiers.engine.t1_path.clear();
  std::string text;
  for (const auto& [option, value] : TierOptions(tiers)) {
    if (option == "--t0" && t0 == T0Share::kHidden) continue;
    const size_t end = option == "--t1-read" ? value.find(':') : std::string::npos;
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", option, value.substr(0, end));
  }
  return text;
}

Status CheckT0Share(const TierShares& shares) {
  if (!CompressesOldRows(shares)) return OkStatus();
  return InvalidArgument("tiers.t0_share",
                         "a share has no effect together with old rows in T2, which keep " +
                             RowsInT0Text(kNewestBesideT2) + " rows in T0");
}

}  // namespace ebb
