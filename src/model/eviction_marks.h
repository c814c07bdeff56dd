// The eviction marks of models trained with Dynamic Memory Sparsification ("Inference-Time
// Hyper-Scaling", 003): metadata and weights, of a model's file or an adapter's.
//
// Such models mark rows of each kv head by an eviction logit, scale * c - offset. Where c comes
// from is the layout:
//   query_last_channel  the last channel of the first query head of each group, before RoPE, which
//                       takes no part in attention: the released models
//   adapter             a product with what comes into the layer, behind an RMS norm of its own:
//                       what NVIDIA's public trainer writes; the rest of the model knows nothing
//                       of it
// The logit of token t + shift decides on the row of token t.
#ifndef EBB_MODEL_EVICTION_MARKS_H_
#define EBB_MODEL_EVICTION_MARKS_H_

#include <array>
#include <string>
#include <string_view>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"

namespace ebb {

// The tensors of a layer of EvictionLayout::kAdapter: the norm, the matrix.
[[nodiscard]] std::array<std::string, 2> MarkTensorNames(int layer);

// Reads the metadata of marks; a file without a layout has none. Errors: Corrupt; Unsupported
// (another layout).
[[nodiscard]] Status ReadEvictionMarks(const GgufFile& file, std::string_view family,
                                       Hyperparameters* hparams);

// Gives every layer of `model` the weights of its marks, in `model->buffers`. Refuses tensors of
// marks that the layout has no place for. Errors: Corrupt (a tensor is missing or of another
// shape); Unsupported; OutOfMemory. REQUIRES: ReadEvictionMarks() was called.
[[nodiscard]] Status LoadMarkWeights(const GgufFile& file, WeightMode mode, LoadedModel* model);

}  // namespace ebb

#endif  // EBB_MODEL_EVICTION_MARKS_H_
