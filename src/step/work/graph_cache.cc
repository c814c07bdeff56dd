#include "src/step/work/graph_cache.h"

namespace ebb {
namespace {

// Returns the tensor that a view shows; a rewritten node may itself be a view.
const ggml_tensor* RootOf(const ggml_tensor* tensor) {
  while (tensor->view_src != nullptr) tensor = tensor->view_src;
  return tensor;
}

// Clears the memory addresses and buffers of the tensors, so that ggml_gallocr allocates all of
// them again. Keeps views of tensors outside `contexts`, such as weights.
void TakeFromBuffers(const GraphContexts& contexts) {
  // Clears views last: whether a view is cleared depends on whether its root tensor has been.
  for (const bool takes_views : {false, true}) {
    for (ggml_context* context : contexts) {
      if (context == nullptr) continue;
      for (ggml_tensor* tensor = ggml_get_first_tensor(context); tensor != nullptr;
           tensor = ggml_get_next_tensor(context, tensor)) {
        if ((tensor->view_src != nullptr) != takes_views) continue;
        if (takes_views && RootOf(tensor)->data != nullptr) continue;
        tensor->buffer = nullptr;
        tensor->data = nullptr;
      }
    }
  }
}

}  // namespace

std::unique_ptr<ggml_context, GgmlDeleter> MakeGraphContext(size_t max_nodes, size_t per_node) {
  return std::unique_ptr<ggml_context, GgmlDeleter>(
      ggml_init({.mem_size = per_node * max_nodes * ggml_tensor_overhead() +
                             ggml_graph_overhead_custom(max_nodes, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
}

bool GraphBuffers::Hold(const GraphContexts& contexts, ggml_cgraph* graph) {
  if (held_ == graph) return true;
  held_ = nullptr;
  TakeFromBuffers(contexts);
  if (buffers_ == nullptr) buffers_.reset(ggml_gallocr_new(type_));
  // Plans the memory each time: otherwise ggml would use another graph's plan if the sizes allow
  // it.
  if (buffers_ == nullptr || !ggml_gallocr_reserve(buffers_.get(), graph) ||
      !ggml_gallocr_alloc_graph(buffers_.get(), graph)) {
    buffers_.reset();
    return false;
  }
  held_ = graph;
  return true;
}

}  // namespace ebb
