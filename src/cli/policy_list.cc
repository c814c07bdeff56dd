#include "src/cli/policy_list.h"

#include <fmt/format.h>

#include "ebb/policy.h"

namespace ebb::cli {

ExitCode ListPolicies() {
  fmt::print("policies (--policy NAME[:KEY=VALUE,...]):\n");
  for (const PolicyInfo& policy : BuiltinPolicies()) {
    fmt::print("  {:<11} {}\n", policy.name, policy.description);
    fmt::print("  {:<11} granularity {}, scorer {}, parameters {}\n", "",
               GranularityName(policy.granularity), policy.scorer.empty() ? "none" : policy.scorer,
               policy.params.empty() ? "none" : policy.params);
    fmt::print("  {:<11} source: {}\n", "", policy.source);
  }
  fmt::print("scorers (--scorer NAME):\n");
  for (const ScorerInfo& scorer : BuiltinScorers()) {
    fmt::print("  {:<11} {}\n", scorer.name, scorer.description);
  }
  return ExitCode::kOk;
}

}  // namespace ebb::cli
