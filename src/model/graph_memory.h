// Plans the memory of a decoder's graph as ggml would, without allocating it.
#ifndef EBB_MODEL_GRAPH_MEMORY_H_
#define EBB_MODEL_GRAPH_MEMORY_H_

#include <cstdint>

#include "ebb/status.h"

namespace ebb {

struct LoadedModel;

struct GraphMemory {
  uint64_t tensor_bytes = 0;  // that ggml's allocator lays the tensors out in
  uint64_t work_bytes = 0;    // in which products convert what they multiply
};

// Returns the memory of the graph of a step that reads `num_tokens` tokens and computes the logits
// of the last token. Builds the graph without allocating its tensors; attention counts as one node
// per layer, whose output is a tensor. Errors: those of BuildDecoderGraph(); OutOfMemory.
[[nodiscard]] Result<GraphMemory> PlanGraphMemory(const LoadedModel& model, int num_tokens);

}  // namespace ebb

#endif  // EBB_MODEL_GRAPH_MEMORY_H_
