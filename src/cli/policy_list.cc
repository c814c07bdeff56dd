#include "src/cli/policy_list.h"

#include <fmt/format.h>

#include "ebb/policy.h"

namespace ebb::cli {

ExitCode ListPolicies() {
  fmt::print("policies (--policy NAME[:KEY=VALUE,...]):\n");
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    fmt::print("  {:<19} {}\n", policy.name, policy.description);
    fmt::print("  {:<19} granularity {}, scorer {}, parameters {}\n", "",
               GranularityName(policy.granularity), policy.scorer.empty() ? "none" : policy.scorer,
               policy.params.empty() ? "none" : policy.params);
    fmt::print("  {:<19} source: {}\n", "", policy.source);
  }
  fmt::print("  {:<19} any of them, decided every W steps: --interval, or parameter w=P (64)\n",
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
