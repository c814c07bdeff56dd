#include "ebb/fit.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "src/attention/ggml_records.h"
#include "src/attention/rows.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/loaded/own_attention.h"
#include "src/sequence/draft_options.h"

namespace ebb {
namespace {

// kCodeBytes and kTouchedLater estimate the memory of code and libraries. When a model was loaded,
// 11 to 14 MiB of them were seen in memory, varying with how the system reads files ahead; a
// generation touches 2.1 to 2.3 MB more. If ggml lays the weights out again (AMX), it also touches
// 1.9 MB of the file for the embeddings of 700 tokens. Constants are used, so that the same command
// chooses the same tiers every time.
constexpr uint64_t kCodeBytes = uint64_t{19} << 20;
// kTouchedLater is an estimate of the program's memory that a generation uses for the first time:
// 2.1 to 2.3 MB, and 1.9 MB of the file for the embeddings of 700 tokens if ggml lays the weights
// out again (AMX).
constexpr uint64_t kTouchedLater = uint64_t{9} << 19;

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

// Returns the bytes of the program and the tokenizer, without the weights.
uint64_t ProgramBytes(uint64_t weight_bytes) {
  constexpr uint64_t kStep = uint64_t{1} << 18;  // some pages more or less are chance
  const Resident now = ResidentNow();
  const uint64_t data = (now.data_bytes + kStep - 1) / kStep * kStep;
  return data - std::min(data, weight_bytes) + std::max(kCodeBytes, now.code_bytes + kTouchedLater);
}

// Returns the free space of the disk for T1, or 0 if it is unknown.
uint64_t DiskBytes(const std::optional<TierSetting>& tiers) {
  const Result<uint64_t> bytes = FreeDiskBytes(tiers.has_value() ? tiers->engine.t1_path : "");
  return bytes.ok() ? *bytes : 0;
}

// Returns the default granularity of a built-in policy; a windowed policy has that of its base.
Granularity GranularityOf(std::string_view policy) {
  const PolicyInfo* info = FindBuiltinPolicy(policy);
  return info == nullptr ? Granularity::kToken : info->granularity;
}

// Returns whether the device computes attention to rows of T2 in its memory with ebb's own graph
// nodes.
bool HoldsOwnRecords(const DeviceSpec& device, const Model& model) {
  std::string name = device.name;
  for (char& letter : name) letter = static_cast<char>(std::tolower(letter));
  const std::string_view backend = name.starts_with("cuda") ? "CUDA"
                                   : name == "ggml-sim"     ? "Sim"
                                   : name == "ggml-cpu"     ? "CPU"
                                                            : "";
  return TakesOwnAttention(model.loaded(), backend, device.attention);
}

Status CheckOptions(const EngineOptions& engine, const SessionOptions& session) {
  if (session.lossless.has_value()) {
    return InvalidArgument("memory_bytes",
                           "cannot be combined with lossless generation, whose memory beyond T0 is "
                           "not predicted; limit T0 and T1 by caps instead");
  }
  if (engine.kv_cap_bytes > 0 && !session.policy.tiers.has_value()) {
    return InvalidArgument("memory_bytes",
                           "cannot be combined with a cap on the cache, which tiers do not obey; "
                           "give one of them");
  }
  if (session.past_context == PastContext::kReRotate) {
    return InvalidArgument("memory_bytes",
                           "cannot be combined with re-rotated keys, which lie in T0 alone; limit "
                           "the rows that are kept by a policy with a budget");
  }
  return OkStatus();
}

// Returns the placement of a policy that evicts rows before tiers place the others; null: the
// policy evicts none, or no session could have it.
std::shared_ptr<const Placement> RetentionOf(const Model& model, const EngineOptions& engine,
                                             const SessionOptions& session, int context,
                                             ExpectedMarks marks) {
  PolicySpec spec = session.policy;
  TierSetting tiers = TiersOf(engine, session).value_or(TierSetting());
  // Evictions do not depend on caps.
  tiers.engine.t0_cap_bytes = tiers.engine.t1_cap_bytes = 0;
  tiers.shares.evict_beyond_caps = false;
  spec.tiers = tiers.shares;
  if (!EvictsByItself(spec, engine.policies.get())) return nullptr;
  const PageFormat format = PageFormat::Of(model.shape(), engine.kv_type);
  const double trained = model.trained_compression();
  Result<Policy> policy = MakePolicy(
      spec,
      {.shape = model.shape(),
       .row_bytes = format.RowBytes(),
       .compressed_row_bytes =
           CompressedFormat::Of(format, tiers.engine.t2_type.value_or(kDefaultT2Type)).RowStride(),
       .max_tokens = context,
       .tiers = tiers.engine,
       .eviction_window = model.eviction_window(),
       .eviction_shift = model.eviction_shift(),
       .expected_compression = marks == ExpectedMarks::kTrained && trained > 1 ? trained : 1,
       .attention_scale = model.attention_scale(),
       .registry = engine.policies.get()});
  if (!policy.ok()) return nullptr;
  return std::shared_ptr<const Placement>(std::move(policy->placement));
}

}  // namespace

void FitRequest::SetContext(int tokens, int given) {
  context = tokens;
  prompts_at_any_time = given == kPromptsOfConversation;
  prompt_tokens = prompts_at_any_time ? tokens / 2 : std::min(given, tokens);
}

Result<FitModel> MeasureFitModel(const Model& model, const EngineOptions& engine) {
  const auto resident = [](const Model& one) {
    return one.loaded().has_weights ? one.weight_bytes() : 0;
  };
  // An MTP layer's weights are counted with the model's.
  const Model* const draft =
      engine.draft_model != nullptr ? engine.draft_model.get() : model.loaded().mtp.get();
  const uint64_t weights = resident(model) + (draft != nullptr ? resident(*draft) : 0);
  const uint64_t program_bytes = ProgramBytes(weights);  // before graphs are planned
  EBB_ASSIGN_OR_RETURN(FitModel measured, FitModelOf(model));
  measured.program_bytes = program_bytes;
  if (draft == nullptr) return measured;
  EBB_ASSIGN_OR_RETURN(FitModel of_draft, FitModelOf(*draft));
  measured.draft = std::make_shared<const FitModel>(std::move(of_draft));
  const Hyperparameters& hparams = draft->loaded().hparams;
  measured.draft_reads_cache = !hparams.has_cache;
  if (IsHead(hparams)) measured.draft_hidden_rows = static_cast<int>(RowsReadBy(hparams).size());
  EngineOptions rest = engine;
  const EngineOptions of_engine = TakeDraftOptions(model, *draft, &rest);
  measured.draft_cap_bytes = of_engine.kv_cap_bytes;
  if (engine.draft_compressed_type.has_value()) {
    measured.draft_tiers = CompressedCache(*engine.draft_compressed_type);
    measured.draft_cap_bytes = of_engine.tiers->t0_cap_bytes;
  }
  return measured;
}

FitRequest FitRequestOf(const Model& model, const EngineOptions& given,
                        const SessionOptions& session, int prompt_tokens, ExpectedMarks marks) {
  EngineOptions engine = given;
  if (given.draft_model != nullptr) (void)TakeDraftOptions(model, *given.draft_model, &engine);
  const PolicySpec& policy = session.policy;
  FitRequest request;
  request.SetContext(session.context > 0 ? session.context : model.shape().trained_context,
                     prompt_tokens);
  request.kv_type = engine.kv_type;
  request.kv_cap_bytes = engine.kv_cap_bytes;
  request.prefill_chunk = engine.prefill_chunk;
  request.threads = engine.threads > 0 ? engine.threads : AvailableProcessors().threads;
  request.tiers = TiersOf(engine, session);
  request.sinks = policy.sinks.value_or(request.sinks);
  request.window = policy.window.value_or(request.window);
  request.interval = policy.interval.value_or(request.interval);
  request.granularity = policy.granularity.value_or(GranularityOf(policy.name));
  request.retention = RetentionOf(model, engine, session, request.context, marks);
  request.places_by_position =
      request.retention != nullptr || (policy.name == PolicySpec().name && policy.scorer.empty() &&
                                       !policy.sinks && !policy.window && !policy.interval);
  request.on_device = engine.device.kind == DeviceKind::kBackend;
  const LoadedModel& loaded = model.loaded();
  const size_t state_bytes = loaded.hparams.state_bytes;
  const bool guesses = session.speculation != Speculation::kOff && !session.lossless.has_value() &&
                       !request.on_device && (state_bytes == 0 || loaded.hparams.keeps_states) &&
                       (session.guesses_inexactly || !MultipliesComputedMatrices(loaded));
  if (guesses) request.decode_tokens = kMostTokensWithGuesses;
  if (guesses && state_bytes > 0) {
    request.decode_tokens = MostStateSlots(state_bytes, loaded.weight_bytes, request.decode_tokens);
  }
  request.device_attention = engine.device.attention;
  if (request.on_device) {
    const bool has_own = HoldsOwnRecords(engine.device, model);
    request.t2_in_ggml_blocks = !has_own && FitsGgmlBlocks(model.shape().head_dim);
    request.t2_on_device = has_own || request.t2_in_ggml_blocks;
  }
  return request;
}

Result<MemoryPlan> PlanMemory(const Model& model, const MemoryRequest& request,
                              const EngineOptions& engine, const SessionOptions& session) {
  EBB_RETURN_IF_ERROR(CheckOptions(engine, session));
  EBB_ASSIGN_OR_RETURN(const FitModel measured, MeasureFitModel(model, engine));
  FitRequest fit = FitRequestOf(model, engine, session, request.prompt_tokens, request.marks);
  if (request.max_tokens >= 0 && !fit.prompts_at_any_time && request.prompt_tokens < fit.context) {
    fit.context =
        request.prompt_tokens + std::min(fit.context - request.prompt_tokens, request.max_tokens);
  }
  MemoryPlan plan = {
      .setting = {.name = "as asked for", .tiers = TiersOf(engine, session)},
      .is_chosen = !fit.tiers.has_value(),
      .context = fit.context,
      .limits = {.memory_bytes = request.memory_bytes, .disk_bytes = DiskBytes(fit.tiers)}};
  if (fit.on_device) {
    plan.limits.device_bytes = plan.limits.memory_bytes;
    EBB_ASSIGN_OR_RETURN(plan.limits.memory_bytes, AvailableMemoryBytes());
    plan.limits.memory_bytes += measured.program_bytes;  // it is there already
  }
  if (plan.is_chosen) {
    EBB_ASSIGN_OR_RETURN(plan.setting, GentlestSetting(measured, fit, plan.limits));
    fit.tiers = plan.setting.tiers;
  }
  EBB_ASSIGN_OR_RETURN(plan.bytes, FitRequestInto(measured, fit));
  const Status fits = CheckFit(plan.bytes, plan.limits);
  // On a device the requested memory is the device's. CheckFit() checks the host's memory first, so
  // an OutOfMemory concerns the device only if the host's bytes fit.
  const bool is_limit = !fit.on_device || plan.bytes.Memory() <= plan.limits.memory_bytes;
  if (fits.code() == StatusCode::kOutOfMemory && is_limit) {
    return Status(fits.code(), "memory_bytes", fits.message());
  }
  EBB_RETURN_IF_ERROR(fits);
  return plan;
}

}  // namespace ebb
