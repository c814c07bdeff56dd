// Loads an adapter's file, which makes a model mark rows for eviction although the model's own file
// has no marks (docs/dev/formats.md). An adapter adds tensors and changes none of the model's.
#ifndef EBB_MODEL_ADAPTER_H_
#define EBB_MODEL_ADAPTER_H_

#include <cstdint>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

// Checks the adapter's file of `options` against the model and gives the model its marks. Returns
// the fingerprint of the file. Errors, which name the path: those of GgufFile::Open(),
// ReadEvictionMarks() and LoadMarkWeights(); Unsupported (the file is no adapter, is of another
// kind, or has tensors that the model has no place for); InvalidArgument (the adapter is for
// another family, or the model marks rows already). REQUIRES: the model was described; its weights
// need not be loaded.
[[nodiscard]] Result<uint64_t> LoadAdapter(const ModelOptions& options, LoadedModel* model);

}  // namespace ebb

#endif  // EBB_MODEL_ADAPTER_H_
