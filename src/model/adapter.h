// An adapter's file: what makes a model mark rows that marks none by itself (docs/dev/formats.md).
// It adds tensors and changes none of the model's.
#ifndef EBB_MODEL_ADAPTER_H_
#define EBB_MODEL_ADAPTER_H_

#include <cstdint>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/loaded_model.h"

namespace ebb {

// Checks the adapter's file of `options` against the model and gives the model its marks. Returns
// the fingerprint of the file. Errors, which name the path: those of GgufFile::Open(), of
// ReadEvictionMarks() and of LoadMarkWeights(); Unsupported (no adapter, one of another kind,
// tensors that the model has no place for); InvalidArgument (of another family, or for a model that
// marks rows already). REQUIRES: the model was described; its weights need not be loaded.
[[nodiscard]] Result<uint64_t> LoadAdapter(const ModelOptions& options, LoadedModel* model);

}  // namespace ebb

#endif  // EBB_MODEL_ADAPTER_H_
