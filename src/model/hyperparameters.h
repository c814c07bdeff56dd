// The sizes and constants of a model, from the metadata of its file.
#ifndef EBB_MODEL_HYPERPARAMETERS_H_
#define EBB_MODEL_HYPERPARAMETERS_H_

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/family.h"
#include "src/model/gguf_file.h"
#include "src/model/loaded_model.h"

namespace ebb {

// Models trained with Dynamic Memory Sparsification ("Inference-Time Hyper-Scaling", 003) mark rows
// of each kv head by an eviction logit, scale * c - offset. Where c comes from is the layout:
//   query_last_channel  the last channel of the first query head of each group, before RoPE, which
//                       takes no part in attention: the released models
//   adapter             a product with what comes into the layer, behind an RMS norm of its own:
//                       what NVIDIA's public trainer writes; the rest of the model knows nothing
//                       of it
// The logit of token t + shift decides on the row of token t.
//
// Reads them, of a model's file or an adapter's; without a layout there are none. Errors: Corrupt;
// Unsupported (another layout).
[[nodiscard]] Status ReadEvictionMarks(const GgufFile& file, const ModelFamily& family,
                                       Hyperparameters* hparams);

// InvalidArgument unless the options' rope scaling and factor go together.
[[nodiscard]] Status CheckRopeOptions(const ModelOptions& options);

// Everything but vocab_size, which the tokenizer and the embedding table settle. Errors: Corrupt
// (missing key, wrong type, sizes that do not fit each other or that no model has); Unsupported;
// InvalidArgument (the options' rope scaling).
[[nodiscard]] Result<Hyperparameters> ReadHyperparameters(const GgufFile& file,
                                                          const ModelFamily& family,
                                                          const ModelOptions& options);

}  // namespace ebb

#endif  // EBB_MODEL_HYPERPARAMETERS_H_
