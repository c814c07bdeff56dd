// Implements `ebb fit`: shows the memory that a model, a context and tiers need, and what fits.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/memory.h"
#include "apps/common/models/hub_api.h"
#include "apps/common/models/model_name.h"
#include "apps/common/models/reasoners.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/say.h"
#include "apps/ebb/fit/commands.h"
#include "apps/ebb/fit/list.h"
#include "apps/ebb/fit/rows.h"
#include "apps/ebb/fit/text.h"
#include "ebb/fit.h"

namespace ebb::cli {
namespace {

Json ToJson(const FitRow& row) {
  Json json = {{"setting", row.setting.name}, {"fits", row.fits.ok()}};
  if (!row.fits.ok()) json["why_not"] = TextWithOption(row.fits);
  json["largest_context"] = row.largest_context;
  json["most_requests"] = row.most_requests;
  if (!row.bytes.ok()) return json;
  const FitBytes& bytes = *row.bytes;
  json["tokens_per_s"] = row.tokens_per_s;
  json["memory_bytes"] = bytes.Memory();
  if (row.as_trained.has_value()) {
    json["memory_bytes_as_trained"] = row.as_trained->Memory();
    json["rows_bytes_as_trained"] = RowsBytes(*row.as_trained);
  }
  json["disk_bytes"] = bytes.t1_disk;
  if (bytes.on_device) json["device_memory_bytes"] = bytes.DeviceMemory();
  json["bytes"] = {{"weights", bytes.weights},
                   {"program", bytes.program},
                   {"compute", bytes.compute},
                   {"t0", bytes.t0},
                   {"t1_memory", bytes.t1_memory},
                   {"t1_disk", bytes.t1_disk},
                   {"t2", bytes.t2},
                   {"tables", bytes.tables},
                   {"states", bytes.states},
                   {"draft", bytes.draft},
                   {"staging", bytes.staging},
                   {"staging_on_host", bytes.staging_on_host}};
  return json;
}

// Returns the error that `ebb run --memory` would give: options with which no session opens, or
// without tiers a policy that cannot rank rows for them.
Status CheckThatItRuns(std::shared_ptr<const Model> model, const CliOptions& options) {
  SessionOptions session = options.session;
  if (!session.policy.tiers.has_value() && !EvictsBesideTiers(session.policy)) {
    // Without given tiers, the policy ranks rows for the tiers that --memory tries.
    EBB_RETURN_IF_ERROR(CheckPolicyOfTiers(*model, session.policy));
    session.policy = PolicySpec();
  }
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(std::move(model), options.engine));
  return engine->OpenSession(session).status();
}

// Returns the settings that the table shows: the given tiers, and those of the typical ones that go
// with the policy.
std::vector<FitSetting> SettingsOf(int head_dim, const FitRequest& request) {
  std::vector<FitSetting> settings;
  if (request.tiers.has_value()) settings.push_back({"as asked for", request.tiers});
  for (FitSetting& setting : TypicalSettings(head_dim, request.on_device, request.t2_on_device)) {
    if (IsAllowed(setting, request)) settings.push_back(std::move(setting));
  }
  return settings;
}

// Returns the request if the model marks as many rows as it was trained to; nothing if no marks
// evict rows, or the request already counts these.
std::optional<FitRequest> AsTrained(const Model& model, const CliOptions& options,
                                    const FitRequest& request) {
  const bool has_marks = request.retention != nullptr && request.retention->DecidedAfter() > 0;
  if (!has_marks || model.trained_compression() <= 1 ||
      options.fit.marks == ExpectedMarks::kTrained) {
    return std::nullopt;
  }
  FitRequest trained = FitRequestOf(model, options.engine, options.session,
                                    options.fit.prompt_tokens, ExpectedMarks::kTrained);
  trained.requests = request.requests;
  return trained;
}

// Returns the record of --json.
Json RecordOf(const std::string& model, const FitQuestion& question, const Machine& machine,
              const std::vector<FitRow>& rows, const Result<FitSetting>& gentlest) {
  Json record = {{"model", model},
                 {"context", question.request.context},
                 {"prompt_tokens", question.request.prompt_tokens},
                 {"requests", question.request.requests},
                 {"kv_type", RowTypeName(question.request.kv_type)},
                 {"measured",
                  {{"memory_gb_s", machine.speeds.memory_gb_s},
                   {"disk_gb_s", machine.speeds.disk_gb_s},
                   {"program_bytes", question.model.program_bytes},
                   {"memory_limit_bytes", machine.limits.memory_bytes},
                   {"disk_limit_bytes", machine.limits.disk_bytes},
                   {"threads", machine.threads}}},
                 {"settings", Json::array()},
                 {"gentlest", gentlest.ok() ? Json(gentlest->name) : Json()}};
  if (machine.speeds.step_seconds > 0) {
    record["measured"]["step_s"] = machine.speeds.step_seconds;
    record["measured"]["full_rows_gb_s"] = machine.speeds.full_rows_gb_s;
    for (const auto& [type, rate] : machine.speeds.compressed_rows_gb_s) {
      record["measured"][fmt::format("{}_rows_gb_s", CompressedTypeName(type))] = rate;
    }
  }
  if (question.request.on_device) {
    record["measured"]["device_limit_bytes"] = machine.limits.device_bytes;
  }
  record["active_weight_bytes"] = WeightsRead(question.model, 1);
  const auto mapped = MappedOf(rows, question.request, machine);
  if (mapped.has_value()) {
    record["mapped_weights"] = {{"resident_bytes", mapped->resident_bytes},
                                {"disk_bytes_per_step", mapped->disk_bytes_per_step},
                                {"tokens_per_s", mapped->tokens_per_s}};
  }
  for (const FitRow& row : rows) record["settings"].push_back(ToJson(row));
  return record;
}

// Loads the model, or the metadata alone of a model that is not stored here. Errors: --measure
// without weights; those of FindModelOrHeader() and Model::Load().
Result<std::shared_ptr<const Model>> LoadForFit(const CliOptions& options, bool* has_weights) {
  EBB_ASSIGN_OR_RETURN(const ModelOptions found, FindModelOrHeader(options));
  *has_weights = found.weights != WeightMode::kUnread;
  if (*has_weights) return Model::Load(found);
  if (options.fit.measure) {
    return InvalidArgument(fmt::format(
        "--measure: runs the model, whose weights are not here; `ebb pull {}` fetches them",
        options.model.path));
  }
  auto model = Model::Load(found);
  if (!model.ok()) return model.status().WithPrefix(options.model.path);
  return model;
}

// Judges the settings and prints the answer. Returns whether the given tiers fit; without given
// tiers, whether any row of the table does.
Status Answer(const CliOptions& options, const std::string& description,
              const FitQuestion& question, const Machine& machine) {
  std::vector<FitRow> rows;
  for (FitSetting& setting : SettingsOf(question.model.shape.head_dim, question.request)) {
    rows.push_back(Judge(question, machine, std::move(setting)));
  }
  const auto gentlest = GentlestSetting(question.model, question.request, machine.limits);
  EBB_RETURN_IF_ERROR(
      WriteRecord(options, RecordOf(description, question, machine, rows, gentlest),
                  FitText(options, description, question, machine, rows, gentlest)));
  if (question.request.tiers.has_value()) return rows.front().fits;
  return gentlest.ok() ? OkStatus() : gentlest.status();
}

// Answers by the table of known models, since the model could not be loaded for `why`. Returns
// `why` if the hub was reached, if the table lacks the model, and for options that need its file.
Status AnswerFromTable(const CliOptions& options, const Status& why) {
  const auto name = ParseModelName(options.model.path);
  const Reasoner* const known = name.ok() ? FindReasoner(*name) : nullptr;
  const bool needs_file = options.fit.measure || !options.session.policy.scorer.empty() ||
                          options.session.policy.name != PolicySpec().name ||
                          options.engine.device.kind == DeviceKind::kBackend;
  if (known == nullptr || needs_file || (why.code() != StatusCode::kIo && !HubIsOffline()))
    return why;
  if (!options.quiet)
    Say("ebb: {}\nebb: the sizes below are those of ebb's own table\n", why.message());
  EBB_ASSIGN_OR_RETURN(const Machine machine, MeasureMachine(nullptr, options));
  FitQuestion question =
      QuestionOf(FitModelFor(*known), options, machine.threads, known->trained_context);
  question.download_bytes = known->bytes;
  return Answer(options, std::string(known->description), question, machine);
}

}  // namespace

Status RunFit(const CliOptions& given) {
  CliOptions options = given;
  if (options.fit.list) return RunFitList(options);
  if (options.fit.measure && options.engine.device.kind == DeviceKind::kBackend) {
    return InvalidArgument("--measure: the speed of a device is not predicted; leave it out");
  }
  if (options.engine.kv_cap_bytes > 0 && !options.session.policy.tiers.has_value()) {
    return InvalidArgument(
        "--kv-cap: limits the full cache alone; give the limit as --memory, which counts the "
        "weights too");
  }
  bool has_weights = true;
  const auto loaded = LoadForFit(options, &has_weights);
  if (!loaded.ok()) return AnswerFromTable(options, loaded.status());
  const std::shared_ptr<const Model>& model = *loaded;
  EBB_RETURN_IF_ERROR(OpenDraftModel(model, &options));
  EBB_ASSIGN_OR_RETURN(FitModel measured, MeasureFitModel(*model, options.engine));
  FitQuestion question = {.model = std::move(measured),
                          .request = FitRequestOf(*model, options.engine, options.session,
                                                  options.fit.prompt_tokens, options.fit.marks),
                          .as_trained = {},
                          .download_bytes = has_weights ? 0 : model->weight_bytes()};
  // An engine on a device would copy weights to it.
  const bool is_checked = has_weights || options.engine.device.kind == DeviceKind::kCpu;
  if (is_checked) EBB_RETURN_IF_ERROR(CheckThatItRuns(model, options));
  question.request.requests = options.fit.requests;
  question.as_trained = AsTrained(*model, options, question.request);
  EBB_ASSIGN_OR_RETURN(const Machine machine, MeasureMachine(model, options));
  return Answer(options, model->description(), question, machine);
}

}  // namespace ebb::cli
