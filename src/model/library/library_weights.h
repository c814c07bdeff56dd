// Places the weights of a model that libllama described without memory.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_WEIGHTS_H_
#define EBB_MODEL_LIBRARY_LIBRARY_WEIGHTS_H_

#include <cstdint>
#include <span>

#include "ebb/model.h"
#include "ebb/status.h"
#include "src/model/library/graph_rewrite.h"
#include "src/model/library/internals.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/weights.h"

namespace ebb {

struct WeightSizes {
  uint64_t weight_bytes = 0;  // of matrices that products read, and of vectors
  uint64_t lookup_bytes = 0;  // of tables in the mapped file whose rows are looked up
};

// Gives every weight its memory. for_device: all weights stay in the mapped file. Copied weights of
// one group are stored next to each other. Errors: Corrupt if the file lacks a tensor that libllama
// expects; OutOfMemory. REQUIRES: `model` was loaded with no_alloc; the buffers outlive it.
Result<WeightSizes> PlaceLibraryWeights(const GgufFile& file, WeightMode mode, bool for_device,
                                        const WeightGroups& groups, llama_model* model,
                                        WeightBuffers* buffers);

// Joins weights of a group that have one type and are adjacent in memory: makes a joined tensor in
// `ctx` and returns each weight's part of it. REQUIRES: the weights were placed.
[[nodiscard]] JoinedWeights JoinWeights(const WeightGroups& groups, ggml_context* ctx);

// Returns the scales of NVFP4 weights that are not among the tensors `read`: many of libllama's
// builders load the scales of a feed-forward block and do not apply them.
[[nodiscard]] WeightScales FindUnreadScales(const llama_model& model,
                                            std::span<ggml_tensor* const> read);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_WEIGHTS_H_
