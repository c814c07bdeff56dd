// ggml keeps what a graph is to itself; a graph of the same nodes that is built from outside does
// not know how often each is read, so that a backend fuses other nodes, and rounds otherwise.
#include "src/step/device/graph_part.h"

#include "ggml-impl.h"

namespace ebb {

void GraphPartDeleter::operator()(ggml_cgraph* part) const { delete part; }

GraphPart PartOf(ggml_cgraph* graph, int begin, int end) {
  return GraphPart(new ggml_cgraph(ggml_graph_view(graph, begin, end)));
}

}  // namespace ebb
