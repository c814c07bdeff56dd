#include "apps/common/setup.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

#include "apps/common/models/built_in_models.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/model_name.h"
#include "apps/common/models/remote_models.h"
#include "apps/common/terminal/exit_code.h"
#include "apps/common/tier_notices.h"
#include "ebb/policy.h"
#include "ebb/session_file.h"

namespace ebb::cli {
namespace {

// Returns the options with which the model is loaded, without its place.
ModelOptions LoadingOptions(const CliOptions& options) {
  ModelOptions model = options.model;
  model.context = options.session.context;
  model.for_device = options.engine.device.kind == DeviceKind::kBackend;
  const Speculation source = options.session.speculation;
  // With --memory, a layer that nobody asked for takes no memory from the rows.
  model.loads_mtp = !options.session.lossless.has_value() &&
                    (source == Speculation::kMtp ||
                     (source == Speculation::kAuto && options.draft_model.empty() &&
                      options.fit.memory_bytes == 0));
  return model;
}

// Finds the model, or fetches it.
Result<ModelOptions> FindModel(const CliOptions& options) {
  ModelOptions model = LoadingOptions(options);
  if (IsBuiltInModel(model.path)) {
    model.contents = BuiltInModelFile(model.path);
  } else if (IsModelName(model.path)) {
    EBB_ASSIGN_OR_RETURN(const ModelName name, ParseModelName(model.path));
    EBB_ASSIGN_OR_RETURN(StoredModel stored,
                         FindOrPullModel(name, FetchSettingsFor(options.quiet)));
    model.path = std::move(stored.path);
  } else {
    auto found = FindModelFile(model.path);
    if (!found.ok()) return AsUsage(found.status());
    model.path = *std::move(found);
  }
  return model;
}

// Announces a policy that evicts by a budget and was given none, so that it keeps every row, or
// only ranks rows for the tiers.
Status AnnouncePolicyWithoutEffect(const CliOptions& options) {
  const PolicySpec& policy = options.session.policy;
  const PolicyInfo* const info = FindBuiltinPolicy(policy.name);
  const bool has_budget = policy.budget.unit != Budget::Unit::kNone || !policy.params.empty();
  const bool takes_budget = info != nullptr && !info->percent_of.empty();
  if (!takes_budget || has_budget) return OkStatus();
  if (policy.tiers.has_value()) {
    if (Evicts(*policy.tiers) || EvictsByItself(policy) || info->name == "quest") return OkStatus();
    return Announce(
        {"policy", fmt::format("--policy {} has no budget, so it evicts nothing and ranks "
                               "rows for the tiers",
                               policy.name)},
        options);
  }
  return Announce({"policy", fmt::format("--policy {} has no budget, so nothing is evicted; add "
                                         "--budget 25%",
                                         policy.name)},
                  options);
}

}  // namespace

Result<ModelOptions> FindModelOrHeader(const CliOptions& options) {
  if (!IsModelName(options.model.path)) return FindModel(options);
  EBB_ASSIGN_OR_RETURN(const ModelName name, ParseModelName(options.model.path));
  EBB_ASSIGN_OR_RETURN(HeaderModel found, FindOrFetchHeader(name, FetchSettingsFor(options.quiet)));
  ModelOptions model = LoadingOptions(options);
  model.path = std::move(found.path);
  if (found.has_weights) return model;
  if (model.weights != WeightMode::kAsStored) {
    return InvalidArgument(fmt::format(
        "--dequantize: needs the weights of {0}; `ebb pull {0}` fetches them", name.text));
  }
  model.weights = WeightMode::kUnread;
  return model;
}

Result<std::shared_ptr<const Model>> OpenModel(const CliOptions& options) {
  EBB_ASSIGN_OR_RETURN(const ModelOptions found, FindModel(options));
  EBB_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, Model::Load(found));
  if (options.session.speculation != Speculation::kMtp || model->mtp_obstacle().empty()) {
    return model;
  }
  return InvalidArgument("--speculate mtp: " + model->mtp_obstacle());
}

Status OpenDraftModel(std::shared_ptr<const Model> target, CliOptions* options) {
  const Speculation wanted = options->speculation;
  const std::string_view name = SpeculationName(wanted);
  const bool names_draft = wanted != Speculation::kMtp &&
                           std::ranges::find(kDraftSources, wanted) != kDraftSources.end();
  if (options->draft_model.empty()) {
    if (names_draft) {
      return InvalidArgument(fmt::format("--speculate {}: needs --draft-model FILE", name));
    }
    if (options->engine.draft_compressed_type.has_value()) {
      return InvalidArgument("--draft-kv-type: needs --draft-model FILE");
    }
    return OkStatus();
  }
  if (wanted == Speculation::kMtp) {
    return InvalidArgument("--speculate mtp: the model guesses itself; leave out --draft-model");
  }
  CliOptions of_draft = *options;
  of_draft.model = {.path = options->draft_model, .target = std::move(target)};
  auto model = OpenModel(of_draft);
  if (!model.ok()) return model.status().WithPrefix("--draft-model");
  const Speculation has = (*model)->draft_source();
  if (names_draft && wanted != has) {
    return InvalidArgument(
        fmt::format("--speculate {}: --draft-model {} is {}", name, options->draft_model,
                    has == Speculation::kModel ? "a whole model (model)"
                                               : fmt::format("a head ({})", SpeculationName(has))));
  }
  if (has != Speculation::kModel && options->engine.draft_compressed_type.has_value()) {
    return InvalidArgument("--draft-kv-type: the rows of a head are not compressed; leave it out");
  }
  options->engine.draft_model = *std::move(model);
  return OkStatus();
}

Result<Setup> OpenSetup(const CliOptions& options) {
  EBB_ASSIGN_OR_RETURN(std::shared_ptr<const Model> model, OpenModel(options));
  return OpenSetup(std::move(model), options);
}

Result<Setup> OpenSetup(std::shared_ptr<const Model> model, const CliOptions& options) {
  EBB_RETURN_IF_ERROR(AnnouncePolicyWithoutEffect(options));
  Setup setup = {.model = std::move(model)};
  EBB_ASSIGN_OR_RETURN(setup.engine, Engine::Create(setup.model, options.engine));
  if (!options.session_file.empty()) {
    Result<ResumedSession> resumed =
        ResumeSession(*setup.engine, options.session_file, options.session);
    if (resumed.ok()) {
      setup.session = std::move(resumed->session);
      setup.resumed = std::move(resumed->extra);
      return setup;
    }
    if (resumed.status().code() != StatusCode::kNotFound) return resumed.status();
  }
  EBB_ASSIGN_OR_RETURN(setup.session, setup.engine->OpenSession(options.session));
  return setup;
}

uint64_t PeakResidentBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  constexpr uint64_t kKiB = 1024;
  return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

}  // namespace ebb::cli
