#include "apps/common/options/policy_list.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ebb/policy.h"

namespace ebb::cli {

namespace {

// Names the signals that a policy reads in each step. Attention costs time to compute; streaming
// and policies on hidden states do not need it.
std::string Reads(const PolicyInfo& info) {
  const PolicyContext context = {.shape = {.num_layers = 2,
                                           .num_q_heads = 1,
                                           .num_kv_heads = 1,
                                           .head_dim = 64,
                                           .embed_dim = 64,
                                           .vocab_size = 1,
                                           .trained_context = 1 << 16},
                                 .row_bytes = 1,
                                 .max_tokens = 1 << 16,
                                 .eviction_window = 1};
  PolicySpec spec = {.name = std::string(info.name), .budget = {Budget::Unit::kRows, 1 << 12}};
  const Result<PolicySpec> taken = DropUnusedOptions(spec);
  const Result<Policy> policy = MakePolicy(taken.ok() ? *taken : spec, context);
  if (info.scorer == "oracle") return "the attention of steps to come";
  if (!policy.ok()) return fmt::format("unknown: {}", policy.status().Text());
  SignalNeeds needs;
  if (policy->placement != nullptr && policy->placement->NeedsScores())
    needs = policy->scorer->Needs();
  if (policy->selector != nullptr) needs = Union(needs, policy->selector->Needs());
  std::string all;
  const auto add = [&](bool is_read, std::string_view name) {
    if (is_read) all.append(all.empty() ? "" : ", ").append(name);
  };
  add(needs.mass != MassNeed::kNone, "attention");
  add(needs.num_recent_queries > 0 || policy->selector != nullptr, "queries");
  add(needs.keys || needs.keys_before_rope, "keys");
  add(needs.values, "values");
  add(!needs.hidden_layers.empty(), "hidden states");
  add(needs.eviction_logits, "marks of the model");
  return all.empty() ? "nothing" : all;
}

// Names the options that the policy takes in addition to --scorer and --granularity.
std::string Options(const PolicyInfo& info) {
  const PolicySpec all = {.name = std::string(info.name), .sinks = 1, .window = 2, .interval = 3};
  const Result<PolicySpec> taken = DropUnusedOptions(all);
  std::vector<std::string_view> names;
  if (!info.percent_of.empty()) names.push_back("--budget");
  if (taken.ok() && taken->sinks.has_value()) names.push_back("--sinks");
  if (taken.ok() && taken->window.has_value()) names.push_back("--window");
  if (taken.ok() && taken->interval.has_value()) names.push_back("--interval");
  return names.empty() ? "no options" : fmt::format("{}", fmt::join(names, ", "));
}

// Names the parameters of the policy and of its default scorer.
std::string Parameters(const PolicyInfo& info) {
  std::vector<std::string_view> lists;
  if (!info.params.empty()) lists.push_back(info.params);
  for (const ScorerInfo& scorer : BuiltinScorers()) {
    if (scorer.name == info.scorer && !scorer.params.empty()) lists.push_back(scorer.params);
  }
  return lists.empty() ? "none" : fmt::format("{}", fmt::join(lists, ","));
}

}  // namespace

ExitCode ListPolicies() {
  fmt::print("policies (--policy NAME[:KEY=VALUE,...]):\n");
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    fmt::print("  {:<19} {}\n", policy.name, policy.description);
    fmt::print("  {:<19} granularity {}, scorer {}, parameters {}\n", "",
               GranularityName(policy.granularity), policy.scorer.empty() ? "none" : policy.scorer,
               Parameters(policy));
    fmt::print("  {:<19} takes {}\n", "", Options(policy));
    fmt::print("  {:<19} reads {}\n", "", Reads(policy));
    if (!policy.percent_of.empty()) {
      fmt::print("  {:<19} a budget in percent is of {}\n", "", policy.percent_of);
    }
    fmt::print("  {:<19} source: {}\n", "", policy.source);
  }
  fmt::print("  {:<19} any that takes --interval, decided every W steps: --interval, or w=P (64)\n",
             "windowed:NAME");
  fmt::print("scorers (--scorer NAME):\n");
  for (const ScorerInfo& scorer : BuiltinScorers()) {
    fmt::print("  {:<19} {}\n", scorer.name, scorer.description);
    if (!scorer.params.empty()) {
      fmt::print("  {:<19} parameters, of a policy with it: {}\n", "", scorer.params);
    }
  }
  return ExitCode::kOk;
}

}  // namespace ebb::cli
