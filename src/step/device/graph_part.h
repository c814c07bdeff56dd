// GraphPart is a range of a graph's nodes, which a backend computes with the same arithmetic as
// within the whole graph.
#ifndef EBB_STEP_DEVICE_GRAPH_PART_H_
#define EBB_STEP_DEVICE_GRAPH_PART_H_

#include <memory>

struct ggml_cgraph;

namespace ebb {

struct GraphPartDeleter {
  void operator()(ggml_cgraph* part) const;
};
using GraphPart = std::unique_ptr<ggml_cgraph, GraphPartDeleter>;

// Returns the nodes [begin, end) of the graph as a part. May throw std::bad_alloc. REQUIRES: the
// graph outlives the part.
[[nodiscard]] GraphPart PartOf(ggml_cgraph* graph, int begin, int end);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_GRAPH_PART_H_
