#include "apps/common/memory.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "apps/common/report.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "ebb/policy.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {

Status CheckPolicyOfTiers(const Model& model, PolicySpec spec) {
  spec.tiers = TierShares();
  const PolicyContext context = {.shape = model.shape(),
                                 .max_tokens = model.shape().trained_context,
                                 .eviction_window = model.eviction_window(),
                                 .eviction_shift = model.eviction_shift(),
                                 .attention_scale = model.attention_scale()};
  EBB_ASSIGN_OR_RETURN(const Policy policy, MakePolicy(spec, context));
  if (policy.selector == nullptr) return OkStatus();
  return InvalidArgument(fmt::format(
      "--policy {}: selects rows within a step and needs all of them in T0; --memory and ebb fit "
      "may choose tiers, which cannot be combined with it",
      spec.name));
}

bool EvictsBesideTiers(PolicySpec spec) {
  if (!spec.tiers.has_value()) spec.tiers.emplace();
  return EvictsByItself(spec);
}

namespace {

Status Announce(const MemoryPlan& plan, const CliOptions& options) {
  if (options.json) {
    Json record = {{"tiers_setting", plan.setting.name},
                   {"memory_bytes", plan.bytes.Memory()},
                   {"memory_limit_bytes", plan.limits.memory_bytes},
                   {"disk_bytes", plan.bytes.t1_disk},
                   {"context", plan.context}};
    if (plan.bytes.on_device) {
      record["device_memory_bytes"] = plan.bytes.DeviceMemory();
      record["device_limit_bytes"] = plan.limits.device_bytes;
    }
    return WriteToStderr(record.dump() + "\n");
  }
  if (!options.quiet && plan.bytes.on_device) {
    Say("[planned: {} of {} on the device, {} on the host, for {} tokens, {} on the disk; tiers: "
        "{}]\n",
        SizeText(plan.bytes.DeviceMemory()), SizeText(plan.limits.device_bytes),
        SizeText(plan.bytes.Memory()), plan.context, SizeText(plan.bytes.t1_disk),
        plan.setting.name);
  } else if (!options.quiet) {
    Say("[planned: {} of {} for {} tokens, {} on the disk; tiers: {}]\n",
        SizeText(plan.bytes.Memory()), SizeText(plan.limits.memory_bytes), plan.context,
        SizeText(plan.bytes.t1_disk), plan.setting.name);
  }
  return OkStatus();
}

}  // namespace

Status FitIntoMemory(const Model& model, MemoryRequest request, CliOptions* options) {
  if (options->fit.memory_bytes == 0) return OkStatus();
  request.memory_bytes = options->fit.memory_bytes;
  request.marks = options->fit.marks;
  EBB_ASSIGN_OR_RETURN(const MemoryPlan plan,
                       PlanMemory(model, request, options->engine, options->session));
  const bool ranks = plan.is_chosen && !EvictsBesideTiers(options->session.policy);
  if (ranks) EBB_RETURN_IF_ERROR(CheckPolicyOfTiers(model, options->session.policy));
  options->fit.chosen = plan.is_chosen;
  SetTiers(plan.setting.tiers, &options->engine, &options->session);
  // The policy was given to rank rows for the tiers. The full cache fits, so no tiers are needed,
  // and the policy is dropped: alone it would evict rows.
  if (ranks && !plan.setting.tiers.has_value()) {
    options->session.policy = PolicySpec{.seed = options->session.policy.seed};
  }
  if (plan.bytes.on_device && options->engine.device.memory_bytes == 0) {
    // Rows may take the memory that weights and compute buffers leave; the engine does not grow
    // their buffer beyond that.
    const uint64_t rest = plan.bytes.weights + plan.bytes.compute;
    options->engine.device.memory_bytes = plan.limits.device_bytes - rest;
  }
  return Announce(plan, *options);
}

Status FitGenerationIntoMemory(const Model& model, int prompt_tokens, CliOptions* options) {
  return FitIntoMemory(model, {.prompt_tokens = prompt_tokens, .max_tokens = options->max_tokens},
                       options);
}

}  // namespace ebb::cli
