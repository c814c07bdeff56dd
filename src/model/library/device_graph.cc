#include "src/model/library/device_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ebb {

std::vector<RowLookup> TakeLookups(ggml_cgraph* graph, const WeightSet& weights) {
  std::vector<RowLookup> lookups;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* const node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_GET_ROWS || !weights.contains(node->src[0])) continue;
    if ((node->src[1]->flags & GGML_TENSOR_FLAG_INPUT) == 0) continue;
    lookups.push_back({.table = node->src[0], .ids = node->src[1], .rows = node});
    node->op = GGML_OP_NONE;
    std::memset(node->src, 0, sizeof(node->src));
    ggml_set_input(node);
  }
  return lookups;
}

std::vector<ggml_tensor*> WeightsRead(ggml_cgraph* graph, const WeightSet& weights) {
  std::vector<ggml_tensor*> read;
  const auto add = [&](ggml_tensor* tensor) {
    if (weights.contains(tensor) && std::ranges::find(read, tensor) == read.end()) {
      read.push_back(tensor);
    }
  };
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    for (ggml_tensor* source : node->src) add(source);
    add(node->view_src);
  }
  return read;
}

Status ReadCopies(ggml_cgraph* graph, const WeightSet& weights, const WeightCopies& copies) {
  Status status;
  const auto copy_of = [&](ggml_tensor* tensor) {
    if (!weights.contains(tensor)) return tensor;
    const auto found = copies.find(tensor);
    if (found != copies.end()) return found->second;
    status = Unsupported(fmt::format("weight {} is read by some steps alone", tensor->name));
    return tensor;
  };
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* const node = ggml_graph_node(graph, i);
    for (ggml_tensor*& source : node->src) source = copy_of(source);
    ggml_tensor* const viewed = copy_of(node->view_src);
    if (viewed == node->view_src) continue;
    node->view_src = viewed;
    node->data = static_cast<char*>(viewed->data) + node->view_offs;
    node->buffer = nullptr;  // the allocator of the graph enters it
  }
  return status;
}

}  // namespace ebb
