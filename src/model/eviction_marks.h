// Reads the eviction marks of models trained with Dynamic Memory Sparsification ("Inference-Time
// Hyper-Scaling", 003): metadata and weights, from a model's file or an adapter's.
//
// Such a model marks rows of each kv head by an eviction logit, scale * c - offset. The layout says
// how c is computed:
//   query_last_channel  c is the last channel of the first query head of each group, before RoPE,
//                       which takes no part in attention: the released models
//   adapter             c is a product with the input of the layer, after an RMS norm of its own:
//                       the layout that NVIDIA's public trainer writes; the rest of the model is
//                       unchanged
// The logit of token t + shift decides on the row of token t.
#ifndef EBB_MODEL_EVICTION_MARKS_H_
#define EBB_MODEL_EVICTION_MARKS_H_

#include <array>
#include <string>
#include <string_view>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

// Returns the names of the tensors of a layer of EvictionLayout::kAdapter: the norm and the matrix.
[[nodiscard]] std::array<std::string, 2> MarkTensorNames(int layer);

// Reads the metadata of marks into `hparams`; a file without a layout has no marks. Errors:
// Corrupt; Unsupported (an unknown layout).
[[nodiscard]] Status ReadEvictionMarks(const GgufFile& file, std::string_view family,
                                       Hyperparameters* hparams);

// Gives every layer of `model` the weights of its marks, in `model->buffers`. Errors: Corrupt (a
// tensor is missing or has another shape); Unsupported (a tensor of marks that the layout has no
// place for); OutOfMemory. REQUIRES: ReadEvictionMarks() was called.
[[nodiscard]] Status LoadMarkWeights(const GgufFile& file, WeightMode mode, LoadedModel* model);

}  // namespace ebb

#endif  // EBB_MODEL_EVICTION_MARKS_H_
