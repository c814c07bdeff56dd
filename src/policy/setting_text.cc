#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

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

// Each value stands behind its length, so that no value can say what another field does.
std::string SettingKey(const SessionOptions& options) {
  const auto& [policy, make_policy, foresight, context, past_context, extra_signals, on_signals,
               lossless, t0_floor_bytes, explained, ledger, step_costs] = options;
  std::string key;
  const auto add = [&](std::string_view name, const auto& field) {
    const std::string value = ValueText(field);
    key += fmt::format("{}={}:{};", name, value.size(), value);
  };
  VisitPolicyFields(policy, add);
  if (policy.tiers.has_value()) VisitTierFields(*policy.tiers, add);
  add("context", context);
  add("past_context", past_context);
  add("lossless", lossless.has_value());
  return key;
}

std::string TierOptionsText(const TierSpec& tiers, T0Share t0) {
  const auto percent = [](double share) { return fmt::format("{:.6g}%", share * 100); };
  std::string text;
  const auto add = [&](std::string_view option, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", option, value);
  };
  if (t0 == T0Share::kShown && !CompressesOldRows(tiers)) add("--t0", percent(tiers.t0_share));
  add("--t1", std::string(T1PlaceName(tiers.t1)));
  if (HasT2(tiers)) {
    const std::string rows = CompressesOldRows(tiers) ? "old" : percent(tiers.t2_share);
    add("--t2", fmt::format("{}:{}", rows, CompressedTypeName(tiers.t2_type)));
  }
  if (ReadsSelectively(tiers)) add("--t1-read", "select");
  if (tiers.evict_share > 0) add("--evict", percent(tiers.evict_share));
  if (tiers.evict_share > 0 && tiers.evict_of == EvictOf::kAlive) add("--evict-of", "alive");
  return text;
}

}  // namespace ebb
