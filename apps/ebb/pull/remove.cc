// Implements `ebb rm`: removes models that were fetched.
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "apps/common/models/known_models.h"
#include "apps/common/models/model_fetch.h"
#include "apps/common/models/parts_folder.h"
#include "apps/common/models/remote_models.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/ebb/pull/commands.h"
#include "apps/ebb/pull/pull_options.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

namespace fs = std::filesystem;

// Removes the model's file and the parts of an interrupted fetch. Returns the bytes freed.
Result<uint64_t> RemoveKnownModel(const KnownModel& model) {
  const std::string path = KnownModelPath(model);
  std::error_code error;
  const bool has_parts = NumPartsKept(model, path) > 0;
  const bool has_file = fs::exists(path, error);
  if (path.empty() || (!has_file && !has_parts)) {
    return NotFound(fmt::format("{} is not there", model.name));
  }
  uint64_t freed = 0;
  if (has_parts) {
    EBB_ASSIGN_OR_RETURN(const auto folder, PartsFolder::Open(model, path));
    const uintmax_t bytes = fs::file_size(folder->joined(), error);
    if (!error) freed += bytes;
    folder->Drop();  // goes with its last part
  }
  if (!has_file) return freed;
  const uintmax_t bytes = fs::file_size(path, error);
  if (!error && fs::remove(path, error)) freed += bytes;
  if (error) return IoError(fmt::format("{}: {}", path, error.message()));
  return freed;
}

}  // namespace

ExitCode RunRemove(const CliOptions& options) {
  if (options.Of<PullInput>().models.empty()) {
    return Fail(InvalidArgument("NAME",
                                "expected the name of a model, found none; `ebb list` "
                                "shows those that are there"));
  }
  for (const NamedModel& model : options.Of<PullInput>().models) {
    const std::string name =
        model.known != nullptr ? std::string(model.known->name) : model.remote->text;
    const Result<uint64_t> freed =
        model.known != nullptr ? RemoveKnownModel(*model.known) : RemoveStoredModel(*model.remote);
    if (!freed.ok()) return Fail(freed.status());
    if (!options.json)
      SayUnlessQuiet(options.quiet, fmt::format("removed {}: {}", name, SizeText(*freed)));
    if (!options.json) continue;
    const Status status = WriteRecord(options, {{"name", name}, {"bytes_freed", *freed}}, "");
    if (!status.ok()) return Fail(status);
  }
  return ExitCode::kOk;
}

}  // namespace ebb::cli
