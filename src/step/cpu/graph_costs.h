// GraphCosts measures how a graph's time divides among its parts (attention, feed-forward, ...).
// ggml calls an abort callback after every node, on one thread at a time; the time between two
// calls is the time of a node. (An unpatched ggml calls it on thread 0, so that waiting for the
// other threads counts as the next node's time.)
#ifndef EBB_STEP_CPU_GRAPH_COSTS_H_
#define EBB_STEP_CPU_GRAPH_COSTS_H_

#include <cstdint>
#include <vector>

#include "ebb/report.h"
#include "ggml.h"

namespace ebb {

class GraphCosts {
 public:
  // Lists the nodes of the graph. Must be called, and then Begin(), right before the graph is
  // computed.
  explicit GraphCosts(const ggml_cgraph* graph);
  void Begin();
  // Records the time of a node. This is a callback for ggml_backend_cpu_set_abort_callback() with
  // this object as its data; it never asks ggml to abort.
  static bool NodeDone(void* costs);
  // Returns the costs. Must be called right after the graph was computed. Subtracts
  // `io_wait_seconds` from attention's time, in which it is contained.
  [[nodiscard]] StepCosts End(double io_wait_seconds) const;

 private:
  enum class Part : uint8_t { kEmbedding, kMatmul, kAttention, kOther };

  // Give the part that each callback's node belongs to. ggml computes a norm and the product after
  // it as one node, unless an option forbids it; the number of callbacks shows which list applies.
  std::vector<Part> parts_, parts_fused_;
  std::vector<double> done_;
  double start_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_CPU_GRAPH_COSTS_H_
