// The memory of a decoder's graph, planned as ggml plans it and not taken.
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

// Returns the memory that the graph of a step takes which reads `num_tokens` tokens and wants the
// logits of the last one. Builds that graph without allocating its tensors; attention counts as one
// node per layer, whose output is a tensor. Errors: as BuildDecoderGraph(); OutOfMemory.
[[nodiscard]] Result<GraphMemory> PlanGraphMemory(const LoadedModel& model, int num_tokens);

}  // namespace ebb

#endif  // EBB_MODEL_GRAPH_MEMORY_H_
