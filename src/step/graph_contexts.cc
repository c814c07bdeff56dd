#include "src/step/graph_contexts.h"

#include "ggml.h"

namespace ebb {
namespace {

// What a view shows; a rewritten node may itself be a view.
const ggml_tensor* RootOf(const ggml_tensor* tensor) {
  while (tensor->view_src != nullptr) tensor = tensor->view_src;
  return tensor;
}

}  // namespace

void TakeFromBuffers(const GraphContexts& contexts) {
  // Views go after everything that they may be views of.
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

}  // namespace ebb
