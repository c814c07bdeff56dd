#include "src/model/adapter.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "src/model/eviction_marks.h"
#include "src/model/loaded/gguf_file.h"

namespace ebb {
namespace {

using Need = GgufFile::Need;

Status CheckKind(const GgufFile& file, std::string_view family) {
  std::string type, architecture;
  EBB_RETURN_IF_ERROR(file.Read("general.type", Need::kOptional, &type));
  if (type != "adapter") {
    return Unsupported(
        fmt::format("expected an adapter's file: general.type is \"{}\", not \"adapter\"", type));
  }
  EBB_RETURN_IF_ERROR(file.Read("general.architecture", Need::kRequired, &architecture));
  if (architecture == family) return OkStatus();
  return InvalidArgument(fmt::format(
      "an adapter for models of the family \"{}\"; this model is of \"{}\"", architecture, family));
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
  for (const GgufTensor& tensor : file.tensors()) {
    bool has_place = false;
    for (int i = 0; i < num_layers; ++i) {
      for (const std::string& name : MarkTensorNames(i)) has_place |= name == tensor.name;
    }
    if (has_place) continue;
    return Unsupported(
        fmt::format("the file has a tensor {}, which no adapter for a model of {} layers has",
                    tensor.name, num_layers));
  }
  return OkStatus();
}

// Returns the error of opening a file, with the field name that ModelOptions uses for the adapter's
// path.
Status OfAdapter(const Status& status) {
  if (status.field() != kPathField) return status;
  return {status.code(), "adapter", status.message()};
}

Status LoadFrom(const GgufFile& file, WeightMode mode, LoadedModel* model) {
  const std::string& family = model->family_name;
  EBB_RETURN_IF_ERROR(CheckKind(file, family));
  Hyperparameters& hparams = model->hparams;
  if (hparams.eviction_layout != EvictionLayout::kNone) {
    return InvalidArgument(
        fmt::format("an adapter makes a model mark rows, and this model does so already: its file "
                    "has {}.attention.dms.layout",
                    family));
  }
  EBB_RETURN_IF_ERROR(ReadEvictionMarks(file, family, &hparams));
  EBB_RETURN_IF_ERROR(CheckLayout(hparams, family));
  EBB_RETURN_IF_ERROR(CheckTensors(file, hparams.num_layers));
  EBB_ASSIGN_OR_RETURN(model->adapter_name, file.ReadName());
  EBB_RETURN_IF_ERROR(LoadMarkWeights(file, mode, model));
  // Weights read while another program wrote them may be anything, so the file is checked after
  // reading.
  return file.CheckUnchanged();
}

}  // namespace

Result<uint64_t> LoadAdapter(const ModelOptions& options, LoadedModel* model) {
  Result<GgufFile> file = GgufFile::Open(options.adapter);
  if (!file.ok()) return OfAdapter(file.status());
  const Status status = LoadFrom(*file, options.weights, model);
  if (status.ok()) return file->Fingerprint();
  return file->ErrorOfLoading(status.WithPrefix(options.adapter));
}

}  // namespace ebb
