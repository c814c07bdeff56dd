// PartOf() uses internals of ggml_cgraph. A part made by ggml's public functions would not know how
// many nodes read each tensor; a backend would then fuse other nodes than in the whole graph, and
// round differently.
#include "src/step/device/graph_part.h"

#include "ggml-impl.h"

namespace ebb {

void GraphPartDeleter::operator()(ggml_cgraph* part) const { delete part; }

GraphPart PartOf(ggml_cgraph* graph, int begin, int end) {
  return GraphPart(new ggml_cgraph(ggml_graph_view(graph, begin, end)));
}

}  // namespace ebb
