// Reads the eviction marks of models trained with Dynamic Memory Sparsification ("Inference-Time
// Hyper-Scaling"): metadata and weights, from a model's file or an adapter's.
//
// For each token and kv head, such a model computes an eviction logit, scale * c - offset. A logit
// above 0, computed for token t + shift, marks the row of token t as one that may be evicted. The
// layout says how c is computed:
//   query_last_channel  c is the last channel, before RoPE, of the first query head that reads the
//                       kv head. This channel takes no part in attention. The released models have
//                       this layout.
//   adapter             c is the product of a matrix with the layer's input, after an RMS norm of
//                       its own. NVIDIA's public trainer writes this layout; the other weights of
//                       the model stay as they were.
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
