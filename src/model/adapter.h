// An adapter's file: what makes a model mark rows that marks none by itself (docs/dev/formats.md).
// It adds tensors and changes none of the model's.
#ifndef EBB_MODEL_ADAPTER_H_
#define EBB_MODEL_ADAPTER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"
#include "src/model/weights.h"

namespace ebb {

class Adapter {
 public:
  // Checks the file against the model and enters its marks and tensors there, which have no data
  // yet. REQUIRES: the model's own weights were declared. Errors, which name the path: those of
  // GgufFile::Open() and of ReadEvictionMarks(); Corrupt (a tensor is missing or of another shape);
  // Unsupported (no adapter, one of another kind, tensors that the model has no place for);
  // InvalidArgument (of another family, or for a model that marks rows already).
  static Result<std::unique_ptr<Adapter>> Declare(const std::string& path, WeightMode mode,
                                                  LoadedModel* model);
  // Reads the tensors. REQUIRES: the model's own are loaded. What the model needs of the file goes
  // to it.
  Status Load(LoadedModel* model);

 private:
  Adapter(GgufFile file, WeightMode mode, size_t max_tensors)
      : file_(std::move(file)), loader_(file_, mode, max_tensors) {}

  Status DeclareIn(LoadedModel* model);

  GgufFile file_;
  WeightLoader loader_;
};

}  // namespace ebb

#endif  // EBB_MODEL_ADAPTER_H_
