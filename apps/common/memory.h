// --memory: from a size to a setting of the tiers.
#ifndef EBB_APPS_FIT_MEMORY_H_
#define EBB_APPS_FIT_MEMORY_H_

#include "apps/common/options/options.h"
#include "ebb/fit.h"
#include "ebb/model.h"
#include "ebb/policy.h"
#include "ebb/status.h"

namespace ebb::cli {

// Refuses a policy that cannot rank the rows of tiers, whether tiers are needed or not.
[[nodiscard]] Status CheckPolicyOfTiers(const Model& model, PolicySpec spec);

// Without --memory: nothing. With it: PlanMemory() for a request whose memory_bytes are those of
// --memory; the options take the tiers, and stderr tells which. Errors: those of PlanMemory().
[[nodiscard]] Status FitIntoMemory(const Model& model, MemoryRequest request, CliOptions* options);

// FitIntoMemory() for a prompt of so many tokens and the answer that -n allows.
[[nodiscard]] Status FitGenerationIntoMemory(const Model& model, int prompt_tokens,
                                             CliOptions* options);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_MEMORY_H_
