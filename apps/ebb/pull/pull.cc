// Implements `ebb pull`: fetches models by name, or lists the models that have names.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/known_models.h"
#include "apps/common/models/model_fetch.h"
#include "apps/common/models/parts_folder.h"
#include "apps/common/models/reasoners.h"
#include "apps/common/models/remote_models.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/terminal/interrupt.h"
#include "apps/common/terminal/output.h"
#include "apps/ebb/pull/commands.h"
#include "apps/ebb/pull/pull_options.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// LocalState describes the model's local file, judged by its size.
struct LocalState {
  std::string path;
  bool is_there = false;  // a file of the model's size
  uint64_t bytes = 0;     // of the file; 0: there is none
  int num_parts_kept = 0;
};

LocalState StateOf(const KnownModel& model) {
  LocalState state = {.path = KnownModelPath(model)};
  std::error_code error;
  if (const uintmax_t bytes = fs::file_size(state.path, error); !error) state.bytes = bytes;
  state.is_there = state.bytes == model.bytes;
  if (!state.path.empty()) state.num_parts_kept = NumPartsKept(model, state.path);
  return state;
}

Json ToJson(const KnownModel& model, const LocalState& state) {
  return {{"name", model.name},
          {"description", model.description},
          {"licence", model.licence},
          {"bytes", model.bytes},
          {"sha256", model.sha256},
          {"path", state.path},
          {"there", state.is_there},
          {"parts", model.parts.size()},
          {"parts_kept", state.num_parts_kept},
          {"source", "mirror"}};
}

std::string ToText(const KnownModel& model, const LocalState& state) {
  constexpr uint64_t kMegabyte = 1000000;
  std::string where = fmt::format("not there; `ebb pull {}` fetches it", model.name);
  if (state.path.empty()) {
    where = fmt::format("has no place: {}", kNoCacheFolder);
  } else if (state.is_there) {
    where = state.path;
  } else if (state.bytes > 0) {
    where = fmt::format("{} has {} bytes instead of {}; `ebb pull {}` fetches it again", state.path,
                        state.bytes, model.bytes, model.name);
  } else if (state.num_parts_kept > 0) {
    where = fmt::format("{} of {} parts are there; `ebb pull {}` fetches the others",
                        state.num_parts_kept, model.parts.size(), model.name);
  }
  return fmt::format("{:<19} {} MB, {}: {} (mirror)\n{:<19} {}", model.name,
                     model.bytes / kMegabyte, model.licence, model.description, "", where);
}

// Fetches the model unless its file is stored with the right hash.
Status Pull(const KnownModel& model, const CliOptions& options) {
  const std::string path = KnownModelPath(model);
  std::error_code error;
  const bool is_there = fs::exists(path, error);
  Status status = is_there ? CheckSha256(path, model.sha256) : OkStatus();
  const bool is_another = status.code() == StatusCode::kCorrupt;
  if (is_another)
    SayUnlessQuiet(options.quiet, fmt::format("{}; fetching it again", status.message()));
  if (!is_there || is_another) {
    fs::create_directories(CacheFolder(), error);
    if (error) return IoError(fmt::format("cannot make {}: {}", CacheFolder(), error.message()));
    status = FetchModel(model, path, options.quiet);
  }
  EBB_RETURN_IF_ERROR(status);
  SayUnlessQuiet(options.quiet, fmt::format("the model is at {}", path));
  return options.json ? WriteRecord(options, ToJson(model, StateOf(model)), "") : OkStatus();
}

// Returns the record of a model on a server: its name, and its local files if it is stored.
Json ToJson(const ModelName& name, const Result<StoredModel>& stored) {
  Json record = {{"name", name.text}, {"there", stored.ok()}};
  if (stored.ok()) {
    record["path"] = stored->path;
    record["bytes"] = stored->bytes;
    record["files"] = stored->num_files;
  }
  constexpr std::string_view kSources[] = {"hub", "ollama", "url"};
  record["source"] = kSources[static_cast<size_t>(name.source)];
  if (const Reasoner* reasoner = FindReasoner(name.text); reasoner != nullptr) {
    record["description"] = reasoner->description;
    record["licence"] = reasoner->licence;
    record["bytes"] = reasoner->bytes;
  }
  return record;
}

std::string ToText(const ModelName& name, const Result<StoredModel>& stored) {
  const std::string where =
      stored.ok() ? stored->path : fmt::format("not there; `ebb pull {}` fetches it", name.text);
  const Reasoner* reasoner = FindReasoner(name.text);
  if (reasoner == nullptr) return fmt::format("{}\n{:<19} {}", name.text, "", where);
  return fmt::format("{}\n{:<19} {:.1f} GB, {}: {}\n{:<19} {}", name.text, "",
                     static_cast<double>(reasoner->bytes) / 1e9, reasoner->licence,
                     reasoner->description, "", where);
}

Status PullRemote(const ModelName& name, const CliOptions& options) {
  const Result<StoredModel> model = PullRemoteModel(name, FetchSettingsFor(options.quiet));
  if (!model.ok()) return model.status();
  SayUnlessQuiet(options.quiet, fmt::format("the model is at {}", model->path));
  return options.json ? WriteRecord(options, ToJson(name, model), "") : OkStatus();
}

std::vector<NamedModel> ChosenModels(const PullInput& pull) {
  if (!pull.models.empty()) return pull.models;
  if (!pull.list) return {{.known = &KnownModels().front()}};
  std::vector<NamedModel> all;
  for (const KnownModel& model : KnownModels()) all.push_back({.known = &model});
  for (const Reasoner& reasoner : Reasoners()) {
    Result<ModelName> name = ParseModelName(reasoner.name);
    if (name.ok()) all.push_back({.remote = *std::move(name)});
  }
  return all;
}

Status List(const NamedModel& model, const CliOptions& options) {
  if (model.known != nullptr) {
    const LocalState state = StateOf(*model.known);
    return WriteRecord(options, ToJson(*model.known, state), ToText(*model.known, state));
  }
  const Result<StoredModel> stored = FindStoredModel(*model.remote);
  return WriteRecord(options, ToJson(*model.remote, stored), ToText(*model.remote, stored));
}

// Prints all models that have names, a line each: size, memory, and whether the file is stored.
Status ListAll() {
  constexpr int kContext = 8192;
  const auto line = [](std::string_view name, double file_gb, double memory_gb, bool is_here) {
    return fmt::format("{:<52} {:>7.2f} {:>9} {}\n", name, file_gb,
                       memory_gb > 0 ? fmt::format("{:.1f}", memory_gb) : "",
                       is_here ? "     yes" : "");
  };
  std::string text =
      fmt::format("{:<52} {:>7} {:>9} {:>8}\n", "name", "file GB", "memory GB", "here");
  for (const KnownModel& model : KnownModels()) {
    text += line(model.name, static_cast<double>(model.bytes) / 1e9, 0, StateOf(model).is_there);
  }
  for (const Reasoner& model : Reasoners()) {
    const Result<ModelName> name = ParseModelName(model.name);
    text += line(model.name, static_cast<double>(model.bytes) / 1e9,
                 static_cast<double>(MemoryAt(model, kContext)) / 1e9,
                 name.ok() && FindStoredModel(*name).ok());
  }
  text += fmt::format(
      "\n\"memory\" is the size of the weights and of a full cache of {} tokens.\n"
      "`ebb pull NAME` fetches a model, `ebb pull --list NAME` shows its details.\n",
      kContext);
  if (CacheFolder().empty()) text += fmt::format("A model has no place: {}.\n", kNoCacheFolder);
  return WriteTextToStdout(text);
}

}  // namespace

ExitCode RunPull(const CliOptions& options) {
  (void)InstallInterruptHandler();
  const PullInput& pull = options.Of<PullInput>();
  if (pull.list && pull.models.empty() && !options.json) {
    const Status status = ListAll();
    return status.ok() ? ExitCode::kOk : Fail(status);
  }
  for (const NamedModel& model : ChosenModels(pull)) {
    Status status;
    if (pull.list) {
      status = List(model, options);
    } else if (model.known == nullptr) {
      status = PullRemote(*model.remote, options);
    } else if (CacheFolder().empty()) {
      status = NotFound(fmt::format("a model has nowhere to go: {}", kNoCacheFolder));
    } else {
      status = Pull(*model.known, options);
    }
    if (!status.ok()) return Fail(status);
  }
  return ExitCode::kOk;
}

}  // namespace ebb::cli
