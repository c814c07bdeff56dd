// A part of a graph, as a graph whose nodes a backend runs with the very arithmetic of the whole.
#ifndef EBB_STEP_DEVICE_GRAPH_PART_H_
#define EBB_STEP_DEVICE_GRAPH_PART_H_

#include <memory>

struct ggml_cgraph;

namespace ebb {

struct GraphPartDeleter {
  void operator()(ggml_cgraph* part) const;
};
using GraphPart = std::unique_ptr<ggml_cgraph, GraphPartDeleter>;

// Its nodes [begin, end). REQUIRES: the graph outlives the part. May throw std::bad_alloc.
[[nodiscard]] GraphPart PartOf(ggml_cgraph* graph, int begin, int end);

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_GRAPH_PART_H_
