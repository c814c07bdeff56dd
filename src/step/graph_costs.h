// GraphCosts divides the time of a graph among its parts. ggml asks after every node whether to go
// on, on one thread at a time: the time between two such questions is the time of a node. (An
// installed ggml asks on thread 0, so that the wait for other threads counts with the next node.)
#ifndef EBB_STEP_GRAPH_COSTS_H_
#define EBB_STEP_GRAPH_COSTS_H_

#include <cstdint>
#include <vector>

#include "ebb/report.h"
#include "ggml.h"

namespace ebb {

class GraphCosts {
 public:
  // Lists the nodes of the graph. Called, and then Begin(), right before the graph is computed.
  explicit GraphCosts(const ggml_cgraph* graph);
  void Begin();
  // Takes the time of a node. A callback for ggml_backend_cpu_set_abort_callback() with this
  // object; never asks ggml to stop.
  static bool NodeDone(void* costs);
  // Returns the costs. Called right after the graph was computed. Leaves out `io_wait_seconds`,
  // which are part of attention's time.
  [[nodiscard]] StepCosts End(double io_wait_seconds) const;

 private:
  enum class Part : uint8_t { kEmbedding, kMatmul, kAttention, kOther };

  // Give the part of each question's node. ggml computes a norm and the product after it as one
  // node, unless an option forbids it; the number of questions shows which list applies.
  std::vector<Part> parts_, parts_fused_;
  std::vector<double> done_;
  double start_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_GRAPH_COSTS_H_
