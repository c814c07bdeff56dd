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
// of each kv head: in the released layout the last channel of the first query head of each group
// carries the eviction logit, before RoPE, as scale * q - offset. The logit of a token speaks of
// the token before; that channel takes no part in attention.
inline constexpr char kEvictionLayout[] = "query_last_channel";

// Everything but vocab_size, which the tokenizer and the embedding table settle. Errors: Corrupt
// (missing key, wrong type, sizes that do not fit each other or that no model has); Unsupported;
// InvalidArgument (the options' rope scaling).
[[nodiscard]] Result<Hyperparameters> ReadHyperparameters(const GgufFile& file,
                                                          const ModelFamily& family,
                                                          const ModelOptions& options);

}  // namespace ebb

#endif  // EBB_MODEL_HYPERPARAMETERS_H_
