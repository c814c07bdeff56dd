// Implements `ebb list`: the models that are stored on this machine.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/common/models/gguf_header.h"
#include "apps/common/models/gguf_names.h"
#include "apps/common/models/known_models.h"
#include "apps/common/models/remote_models.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/ebb/pull/commands.h"

namespace ebb::cli {
namespace {

std::vector<StoredModel> MirroredModels() {
  std::vector<StoredModel> models;
  for (const KnownModel& known : KnownModels()) {
    const std::string path = KnownModelPath(known);
    std::error_code error;
    const uintmax_t bytes = std::filesystem::file_size(path, error);
    if (error) continue;
    StoredModel model = {.name = std::string(known.name), .path = path, .bytes = bytes};
    if (bytes != known.bytes) {
      model.note = fmt::format("expected {} bytes, found {}", known.bytes, bytes);
    }
    models.push_back(model);
  }
  return models;
}

std::string ShortSize(uint64_t bytes) {
  const auto exact = static_cast<double>(bytes);
  return exact < 1e9 ? fmt::format("{:.0f} MB", exact / 1e6)
                     : fmt::format("{:.2f} GB", exact / 1e9);
}

Json ListRecord(const StoredModel& model, const GgufHeader& header) {
  Json record = {{"name", model.name},
                 {"path", model.path},
                 {"bytes", model.bytes},
                 {"files", model.num_files},
                 {"architecture", header.architecture},
                 {"quantization", header.quantization}};
  if (!model.note.empty()) record["note"] = model.note;
  return record;
}

}  // namespace

ExitCode RunList(const CliOptions& options) {
  std::vector<StoredModel> models = MirroredModels();
  for (StoredModel& model : StoredModels()) models.push_back(std::move(model));
  size_t width = 0;
  for (const StoredModel& model : models) width = std::max(width, model.name.size());
  for (const StoredModel& model : models) {
    GgufHeader header = ReadGgufHeader(model.path);
    if (header.quantization.empty()) header.quantization = QuantTag(model.path);
    std::string line =
        fmt::format("{:<{}}  {:>8}  {:<8} {}", model.name, width, ShortSize(model.bytes),
                    header.quantization, header.architecture);
    if (!model.note.empty()) line += fmt::format(" ({})", model.note);
    const Status status = WriteRecord(options, ListRecord(model, header), line);
    if (!status.ok()) return Fail(status);
  }
  return ExitCode::kOk;
}

}  // namespace ebb::cli
