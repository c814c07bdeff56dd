// The memory of the tensors of a graph.
#ifndef EBB_STEP_GRAPH_CONTEXTS_H_
#define EBB_STEP_GRAPH_CONTEXTS_H_

#include <array>

struct ggml_context;

namespace ebb {

// The contexts that hold the tensors of a graph; null: there is one alone.
using GraphContexts = std::array<ggml_context*, 2>;

// Leaves tensors as if nothing had been allocated for them, so that they can be put into buffers
// that another graph had. Views of tensors outside, as weights, stay.
void TakeFromBuffers(const GraphContexts& contexts);

}  // namespace ebb

#endif  // EBB_STEP_GRAPH_CONTEXTS_H_
