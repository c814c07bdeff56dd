#include "src/cli/fit_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "src/cli/bench_report.h"
#include "src/cli/policy_list.h"

namespace ebb::cli {
namespace {

// Code and libraries: 10.6 to 11.7 MiB of them were seen in memory when a model was loaded, by
// chance as the system reads files ahead, and 2.1 to 2.3 MB more that only a generation touches.
// A constant, so that the same command chooses the same tiers every time.
constexpr uint64_t kCodeBytes = uint64_t{14} << 20;
constexpr uint64_t kTouchedLater = uint64_t{5} << 19;

struct Resident {
  uint64_t code_bytes = 0;  // of files that the program maps for itself alone
  uint64_t data_bytes = 0;  // of all else, a mapped model too
};

Resident ResidentNow() {
  Resident resident;
  std::ifstream maps("/proc/self/smaps");
  bool is_code = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first, second, skipped;
    uint64_t inode = 0;
    words >> first >> second;
    if (first.find('-') != std::string::npos && second.size() == 4) {  // 7f..-7f.. r-xp ...
      words >> skipped >> skipped >> inode;
      is_code = inode != 0 && second[3] == 'p';
    } else if (first == "Rss:") {
      (is_code ? resident.code_bytes : resident.data_bytes) += std::stoull(second) * 1024;
    }
  }
  return resident;
}

// Beside the weights: what the program and the tokenizer take.
uint64_t ProgramBytes(uint64_t weight_bytes) {
  constexpr uint64_t kStep = uint64_t{1} << 18;  // some pages more or less are chance
  const Resident now = ResidentNow();
  const uint64_t data = (now.data_bytes + kStep - 1) / kStep * kStep;
  return data - std::min(data, weight_bytes) + std::max(kCodeBytes, now.code_bytes + kTouchedLater);
}

// The room on the disk for T1; 0 where there is none that can be told.
uint64_t DiskBytes(const CliOptions& options) {
  const auto& tiers = options.session.policy.tiers;
  const Result<uint64_t> bytes = FreeDiskBytes(tiers.has_value() ? tiers->t1_path : "");
  return bytes.ok() ? *bytes : 0;
}

// The policy's own. A windowed one has that of its base.
Granularity GranularityOf(std::string_view policy) {
  const PolicyInfo* info = FindBuiltinPolicy(policy);
  return info == nullptr ? Granularity::kToken : info->granularity;
}

std::string MiB(uint64_t bytes) { return fmt::format("{:.1f} MiB", bytes / 1048576.0); }

}  // namespace

FitQuestion FitQuestionFor(const Model& model, const CliOptions& options, int prompt_tokens) {
  FitQuestion question;
  question.model = FitModelOf(model);
  question.model.program_bytes = ProgramBytes(question.model.weight_bytes);
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

Status FitIntoMemory(const Model& model, int prompt_tokens, CliOptions* options,
                     PromptsCome prompts) {
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
  FitQuestion question = FitQuestionFor(model, *options, prompt_tokens);
  question.request.prompts_at_any_time = prompts == PromptsCome::kAtAnyTime;
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
