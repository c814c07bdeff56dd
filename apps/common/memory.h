// Chooses the tiers with which a session fits into the size that --memory gives.
#ifndef EBB_APPS_FIT_MEMORY_H_
#define EBB_APPS_FIT_MEMORY_H_

#include "apps/common/options/options.h"
#include "ebb/fit.h"
#include "ebb/model.h"
#include "ebb/policy.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns InvalidArgument if the policy selects rows within a step, since it then needs all rows in
// T0 and cannot be combined with tiers. Checks this whether tiers turn out to be needed or not.
[[nodiscard]] Status CheckPolicyOfTiers(const Model& model, PolicySpec spec);

// Returns whether the policy evicts rows by itself before tiers place the others, by a budget or a
// model's marks, rather than ranking rows for the tiers.
[[nodiscard]] bool EvictsBesideTiers(PolicySpec spec);

// Does nothing without --memory. Otherwise calls PlanMemory() with request.memory_bytes set to the
// value of --memory, stores the chosen tiers in `options` and reports them on stderr. Errors: those
// of PlanMemory() and CheckPolicyOfTiers().
[[nodiscard]] Status FitIntoMemory(const Model& model, MemoryRequest request, CliOptions* options);

// Calls FitIntoMemory() for a prompt of `prompt_tokens` tokens and the answer that -n allows.
[[nodiscard]] Status FitGenerationIntoMemory(const Model& model, int prompt_tokens,
                                             CliOptions* options);

}  // namespace ebb::cli

#endif  // EBB_APPS_FIT_MEMORY_H_
