#include "apps/ebb/fit/list.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/known_models.h"
#include "apps/common/models/reasoners.h"
#include "apps/common/models/remote_models.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/terminal/output.h"
#include "apps/common/terminal/wrap.h"
#include "apps/ebb/fit/rows.h"
#include "apps/ebb/fit/text.h"
#include "ebb/device.h"
#include "ebb/fit.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

// The context that the list asks for unless --context is given: the one of `ebb pull --list`.
constexpr int kUsualContext = 8192;

// ListedModel is a model of the list; its sizes are set if a file or the table has them.
struct ListedModel {
  std::string_view name;
  uint64_t file_bytes = 0;
  bool is_here = false;
  std::optional<FitModel> sizes = {};  // nothing: the file is not here, and no table has them
  std::optional<FitRow> row = {};      // with `sizes`
  int context = 0;                     // that was asked for
};

Result<FitModel> SizesOfFile(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(const auto model,
                       Model::Load({.path = path, .weights = WeightMode::kUnread}));
  EBB_ASSIGN_OR_RETURN(FitModel sizes, FitModelOf(*model));
  sizes.program_bytes = kTypicalProgramBytes;
  return sizes;
}

// Reads the sizes from the model's file, if that can be read.
void ReadSizes(const std::string& path, ListedModel* model) {
  Result<FitModel> sizes = SizesOfFile(path);
  model->is_here = sizes.ok();
  if (sizes.ok()) model->sizes = *std::move(sizes);
}

std::vector<ListedModel> ListedModels() {
  std::vector<ListedModel> models;
  for (const KnownModel& known : KnownModels()) {
    ListedModel& model =
        models.emplace_back(ListedModel{.name = known.name, .file_bytes = known.bytes});
    const std::string path = KnownModelPath(known);
    std::error_code error;
    if (std::filesystem::file_size(path, error) == known.bytes && !error) ReadSizes(path, &model);
  }
  for (const Reasoner& reasoner : Reasoners()) {
    ListedModel& model = models.emplace_back(ListedModel{
        .name = reasoner.name, .file_bytes = reasoner.bytes, .sizes = FitModelFor(reasoner)});
    const Result<ModelName> name = ParseModelName(reasoner.name);
    const Result<StoredModel> stored = name.ok() ? FindStoredModel(*name) : name.status();
    if (stored.ok()) ReadSizes(stored->path, &model);
  }
  return models;
}

// Finds the gentlest setting that fits, or judges the given tiers.
void JudgeModel(const CliOptions& options, const Machine& machine, ListedModel* model) {
  if (!model->sizes.has_value()) return;
  const int trained = model->sizes->shape.trained_context;
  const FitQuestion question =
      QuestionOf(*model->sizes, options, machine.threads, std::min(kUsualContext, trained));
  const FitRequest& request = question.request;
  model->context = request.context;
  FitSetting setting = {.name = "as asked for", .tiers = request.tiers};
  if (!request.tiers.has_value()) {
    Result<FitSetting> gentlest = GentlestSetting(question.model, request, machine.limits);
    setting = gentlest.ok() ? *std::move(gentlest) : FitSetting{.name = "full"};
    model->row = Judge(question, machine, std::move(setting));
    if (!gentlest.ok()) model->row->fits = gentlest.status();
  } else {
    model->row = Judge(question, machine, std::move(setting));
  }
  model->row->largest_context = std::min(model->row->largest_context, trained);
}

// Returns the setting in a word: "full", "q4", "file 30%", "evict 10%".
std::string SettingWord(const FitSetting& setting) {
  constexpr std::string_view kKvType = "--kv-type ";
  std::string text = ShortSetting(setting, false);
  if (text.starts_with(kKvType)) return text.substr(kKvType.size());
  if (!setting.tiers.has_value()) return "full";
  if (setting.name == "as asked for") return "yes";
  const TierShares& shares = setting.tiers->shares;
  if (shares.evict_share > 0) return fmt::format("evict {:.0f}%", 100 * shares.evict_share);
  return fmt::format("file {:.0f}%", 100 * shares.t0_share.value_or(0));
}

std::string Line(const ListedModel& model) {
  if (!model.row.has_value()) {
    return fmt::format("{:<52} after `ebb pull` ({:.1f} GB)\n", model.name,
                       static_cast<double>(model.file_bytes) / 1e9);
  }
  const FitRow& row = *model.row;
  const std::string needs = row.bytes.ok() ? SizeText(row.bytes->Memory()) : "?";
  return fmt::format("{:<52}{:1}{:>9} {:>9} {:>7}\n", model.name, model.is_here ? "*" : "", needs,
                     row.fits.ok() ? SettingWord(row.setting) : "no",
                     row.fits.ok() ? std::to_string(row.largest_context) : "-");
}

Json ToJson(const ListedModel& model) {
  Json json = {{"model", model.name},
               {"here", model.is_here},
               {"sizes", model.is_here             ? Json("file")
                         : model.sizes.has_value() ? Json("table")
                                                   : Json()}};
  if (!model.row.has_value()) return json;
  const FitRow& row = *model.row;
  json["context"] = model.context;
  json["fits"] = row.fits.ok();
  if (!row.fits.ok()) json["why_not"] = TextWithOption(row.fits);
  json["setting"] = row.fits.ok() ? Json(row.setting.name) : Json();
  if (row.bytes.ok()) {
    json["memory_bytes"] = row.bytes->Memory();
    json["disk_bytes"] = row.bytes->t1_disk;
  }
  json["largest_context"] = row.largest_context;
  return json;
}

// Returns a command for the largest model that fits, with its introduction, or an empty text.
std::string LargestModelCommand(const CliOptions& options, const std::vector<ListedModel>& models) {
  const ListedModel* best = nullptr;
  for (const ListedModel& model : models) {
    if (model.row.has_value() && model.row->fits.ok() &&
        (best == nullptr || model.file_bytes > best->file_bytes)) {
      best = &model;
    }
  }
  if (best == nullptr) return "";
  CliOptions with_model = options;
  with_model.given.insert(with_model.given.begin(), {"--model", std::string(best->name)});
  const FitSetting& setting = best->row->setting;
  const bool is_given = setting.name == "as asked for";
  return fmt::format("The largest that fits{}:\n\n{}",
                     DownloadText(best->is_here ? 0 : best->file_bytes),
                     CommandFor(with_model, is_given ? "" : ShortSetting(setting, false),
                                best->context, /*names_context=*/true));
}

std::string ListText(const CliOptions& options, const Machine& machine,
                     const std::vector<ListedModel>& models) {
  std::string text =
      fmt::format("{:<52} {:>9} {:>9} {:>7}\n", "name", "memory", "fits with", "context");
  for (const ListedModel& model : models) text += Line(model);
  const std::string context = options.session.context > 0
                                  ? fmt::format("{} tokens", options.session.context)
                                  : fmt::format("{} tokens (--context N)", kUsualContext);
  text +=
      "\n" +
      Wrapped(fmt::format(
                  "For {} of memory and {}. full: the whole cache. q8, q4, q3, q2: `--kv-type`. "
                  "file N%: T1 in a file, and N% of the rows in memory. evict N%: N% of the "
                  "rows are dropped. \"context\": the longest text with that setting. *: the "
                  "model is here. `ebb fit NAME` shows all settings of a model.",
                  SizeText(machine.limits.memory_bytes), context),
              0, kFitColumns);
  const std::string command = LargestModelCommand(options, models);
  return command.empty() ? text : text + "\n\n" + command;
}

}  // namespace

Status RunFitList(const CliOptions& options) {
  if (!options.model.path.empty()) {
    return InvalidArgument("--list: shows all models; leave -m out, or --list");
  }
  if (options.engine.device.kind == DeviceKind::kBackend) {
    return InvalidArgument(
        "--list: counts the processor's memory; leave --device out, and give the card's memory as "
        "--memory");
  }
  if (options.fit.measure) {
    return InvalidArgument("--measure: needs one model; leave --list out");
  }
  Machine machine;
  EBB_ASSIGN_OR_RETURN(machine.limits, FindLimits(options));
  machine.threads =
      options.engine.threads > 0 ? options.engine.threads : AvailableProcessors().threads;
  std::vector<ListedModel> models = ListedModels();
  for (ListedModel& model : models) JudgeModel(options, machine, &model);
  if (!options.json) return WriteTextToStdout(ListText(options, machine, models) + "\n");
  for (const ListedModel& model : models) {
    EBB_RETURN_IF_ERROR(WriteRecord(options, ToJson(model), ""));
  }
  return OkStatus();
}

}  // namespace ebb::cli
