#include "src/model/adapter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "src/model/family.h"
#include "src/model/hyperparameters.h"
#include "src/model/layout.h"

namespace ebb {
namespace {

using Need = GgufFile::Need;

Status CheckKind(const GgufFile& file, const ModelFamily& family) {
  std::string type, architecture;
  EBB_RETURN_IF_ERROR(file.Read("general.type", Need::kOptional, &type));
  if (type != "adapter") {
    return Unsupported(
        fmt::format("expected an adapter's file: general.type is \"{}\", not \"adapter\"", type));
  }
  EBB_RETURN_IF_ERROR(file.Read("general.architecture", Need::kRequired, &architecture));
  if (architecture == family.name) return OkStatus();
  return InvalidArgument(
      fmt::format("an adapter for models of the family \"{}\"; this model is of \"{}\"",
                  architecture, family.name));
}

Status CheckLayout(const Hyperparameters& hparams, std::string_view family) {
  switch (hparams.eviction_layout) {
    case EvictionLayout::kAdapter:
      return OkStatus();
    case EvictionLayout::kNone:
      return Unsupported(
          fmt::format("the metadata lacks {}.attention.dms.layout: adapters that do something else "
                      "than mark rows, such as LoRA, are not supported",
                      family));
    case EvictionLayout::kQueryLastChannel:
      break;
  }
  return Unsupported(
      fmt::format("{}.attention.dms.layout is that of a model; expected \"adapter\"", family));
}

Status CheckTensors(const GgufFile& file, int num_layers) {
  std::unordered_set<std::string> names;
  for (int i = 0; i < num_layers; ++i) {
    for (std::string& name : MarkTensorNames(i)) names.insert(std::move(name));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (names.contains(std::string(tensor.name))) continue;
    return Unsupported(
        fmt::format("the file has a tensor {}, which no adapter for a model of {} layers has",
                    tensor.name, num_layers));
  }
  return OkStatus();
}

// Returns the error of opening a file with ModelOptions' name for the adapter's path.
Status OfAdapter(const Status& status) {
  if (status.field() != kPathField) return status;
  return {status.code(), "adapter", status.message()};
}

}  // namespace

Result<std::unique_ptr<Adapter>> Adapter::Declare(const std::string& path, WeightMode mode,
                                                  LoadedModel* model) {
  Result<GgufFile> opened = GgufFile::Open(path);
  if (!opened.ok()) return OfAdapter(opened.status());
  GgufFile file = *std::move(opened);
  std::unique_ptr<Adapter> adapter(
      new Adapter(std::move(file), mode, MaxDeclarations(model->hparams)));
  const Status status = adapter->DeclareIn(model);
  if (status.ok()) return adapter;
  return adapter->file_.ErrorOfLoading(status.WithPrefix(path));
}

Status Adapter::DeclareIn(LoadedModel* model) {
  const std::string_view family = model->family->name;
  EBB_RETURN_IF_ERROR(CheckKind(file_, *model->family));
  if (model->hparams.eviction_layout != EvictionLayout::kNone) {
    return InvalidArgument(
        fmt::format("an adapter makes a model mark rows, and this model does so already: its file "
                    "has {}.attention.dms.layout",
                    family));
  }
  EBB_RETURN_IF_ERROR(ReadEvictionMarks(file_, *model->family, &model->hparams));
  EBB_RETURN_IF_ERROR(CheckLayout(model->hparams, family));
  EBB_RETURN_IF_ERROR(CheckTensors(file_, model->hparams.num_layers));
  EBB_ASSIGN_OR_RETURN(model->adapter_name, file_.ReadName());
  return DeclareMarks(loader_, model);
}

Status Adapter::Load(LoadedModel* model) {
  const uint64_t fingerprint = file_.Fingerprint();
  model->fingerprint = XXH3_64bits_withSeed(&fingerprint, sizeof(fingerprint), model->fingerprint);
  model->adapter_buffers = std::make_unique<WeightBuffers>();
  if (Status status = loader_.Load(model->adapter_buffers.get()); !status.ok()) {
    return file_.ErrorOfLoading(status);
  }
  model->weight_bytes += loader_.weight_bytes();
  model->lookup_bytes += loader_.lookup_bytes();
  model->adapter_buffers->mappings = GgufFile::TakeMappings(std::move(file_));
  return OkStatus();
}

}  // namespace ebb
