#include "apps/lab/profile/why.h"

#include <fmt/format.h>

#include "ebb/report.h"

namespace ebb::cli {
namespace {

std::string GroupText(int group, int groups_per_layer) {
  if (groups_per_layer == 0) return "all layers";
  const std::string layer = fmt::format("layer {}", group / groups_per_layer);
  return groups_per_layer == 1 ? layer
                               : fmt::format("{}, kv head {}", layer, group % groups_per_layer);
}

}  // namespace

std::string WhyText(const ProfiledRun& run, Position token, int groups_per_layer) {
  if (static_cast<size_t>(token) >= run.tokens.size()) {
    return fmt::format("token {}: the sequence has {} tokens only", token, run.tokens.size());
  }
  if (run.explanations.empty()) {
    return fmt::format("token {}: the policy decided nothing about it, and it lies in T0", token);
  }
  std::string text = fmt::format("token {}:", token);
  for (const Explanation& one : run.explanations) {
    text += fmt::format("\n  at {} tokens, {}: {}: {}", one.num_tokens,
                        GroupText(one.group, groups_per_layer), TierName(one.tier), one.why);
  }
  return text;
}

Json WhyRecord(const ProfiledRun& run, int groups_per_layer) {
  Json record = Json::array();
  for (const Explanation& one : run.explanations) {
    Json decision = {{"tokens", one.num_tokens}, {"tier", TierName(one.tier)}, {"why", one.why}};
    if (groups_per_layer > 0) decision["layer"] = one.group / groups_per_layer;
    if (groups_per_layer > 1) decision["kv_head"] = one.group % groups_per_layer;
    record.push_back(std::move(decision));
  }
  return record;
}

}  // namespace ebb::cli
