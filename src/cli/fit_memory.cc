#include "src/cli/fit_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "src/cli/bench_report.h"

namespace ebb::cli {
namespace {

// Code and data that only a generation touches: 2.1 to 2.3 MB were seen with the smallest models.
constexpr uint64_t kTouchedLater = uint64_t{5} << 19;

// The room on the disk for T1; 0 where there is none that can be told.
uint64_t DiskBytes(const CliOptions& options) {
  const auto& tiers = options.session.policy.tiers;
  const Result<uint64_t> bytes = FreeDiskBytes(tiers.has_value() ? tiers->t1_path : "");
  return bytes.ok() ? *bytes : 0;
}

// The policy's own. A windowed one has that of its base.
Granularity GranularityOf(std::string_view policy) {
  constexpr std::string_view kWindowed = "windowed:";
  if (policy.starts_with(kWindowed)) policy.remove_prefix(kWindowed.size());
  for (const PolicyInfo& info : BuiltinPolicies()) {
    if (info.name == policy) return info.granularity;
  }
  return Granularity::kToken;
}

std::string MiB(uint64_t bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

}  // namespace

FitQuestion FitQuestionFor(const Model& model, const CliOptions& options, int prompt_tokens) {
  FitQuestion question;
  question.model = FitModelOf(model);
  const uint64_t resident = ResidentBytes();
  question.model.program_bytes =
      resident - std::min(resident, question.model.weight_bytes) + kTouchedLater;
  const PolicySpec& policy = options.session.policy;
  FitRequest& request = question.request;
  request.context =
      options.session.context > 0 ? options.session.context : model.shape().trained_context;
  request.prompt_tokens = std::min(prompt_tokens, request.context);
  request.kv_type = options.engine.kv_type;
  request.kv_cap_bytes = options.engine.kv_cap_bytes;
  request.prefill_chunk = options.engine.prefill_chunk;
  request.tiers = policy.tiers;
  request.sinks = policy.sinks.value_or(request.sinks);
  request.window = policy.window.value_or(request.window);
  request.interval = policy.interval.value_or(request.interval);
  request.granularity = policy.granularity.value_or(GranularityOf(policy.name));
  return question;
}

Status FitIntoMemory(const Model& model, int prompt_tokens, CliOptions* options) {
  if (options->fit.memory_bytes == 0) return OkStatus();
  if (options->engine.device.kind != DeviceKind::kCpu) {
    return InvalidArgument("--memory says what one memory holds; with --device, cap the tiers");
  }
  PolicySpec& policy = options->session.policy;
  if (options->session.lossless.has_value()) {
    return InvalidArgument(
        "--memory does not know what --lossless keeps beside T0; give caps by --t0 and --t1");
  }
  if (policy.budget.unit != Budget::Unit::kNone) {
    return InvalidArgument("--memory and --budget both say how much stays; give one");
  }
  const FitQuestion question = FitQuestionFor(model, *options, prompt_tokens);
  const FitLimits limits = {.memory_bytes = options->fit.memory_bytes,
                            .disk_bytes = DiskBytes(*options)};
  FitSetting setting = {.name = "as asked for", .tiers = policy.tiers};
  if (!policy.tiers.has_value()) {
    EBB_ASSIGN_OR_RETURN(setting, GentlestSetting(question.model, question.request, limits));
  }
  FitRequest request = question.request;
  request.tiers = setting.tiers;
  EBB_ASSIGN_OR_RETURN(const FitBytes bytes, FitRequestInto(question.model, request));
  EBB_RETURN_IF_ERROR(CheckFit(bytes, limits));
  options->fit.chosen = !policy.tiers.has_value();
  policy.tiers = setting.tiers;
  options->engine.tiers = setting.tiers;
  if (options->json) {
    const Json record = {{"tiers_setting", setting.name},
                         {"memory_bytes", bytes.Memory()},
                         {"memory_limit_bytes", limits.memory_bytes},
                         {"disk_bytes", bytes.t1_disk},
                         {"context", request.context}};
    fmt::print(stderr, "{}\n", record.dump());
  } else if (!options->quiet) {
    fmt::print(stderr, "[memory: {} of {} for {} tokens, {} on the disk; tiers: {}]\n",
               MiB(bytes.Memory()), MiB(limits.memory_bytes), request.context, MiB(bytes.t1_disk),
               setting.name);
  }
  return OkStatus();
}

Status FitGenerationIntoMemory(const Model& model, int prompt_tokens, CliOptions* options) {
  int* context = &options->session.context;
  const int asked = *context;
  const int most = asked > 0 ? asked : model.shape().trained_context;
  if (options->max_tokens >= 0 && prompt_tokens < most) {
    *context = std::min(most - prompt_tokens, options->max_tokens) + prompt_tokens;
  }
  const Status status = FitIntoMemory(model, prompt_tokens, options);
  *context = asked;
  return status;
}

}  // namespace ebb::cli
