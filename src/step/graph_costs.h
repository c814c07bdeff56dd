// Divides the time of a graph among its parts. ggml asks after every node whether to go on, on one
// thread at a time: the time between two such questions is that of a node. (An installed ggml asks
// on thread 0, which counts waiting for the other threads with the next node.)
#ifndef EBB_STEP_GRAPH_COSTS_H_
#define EBB_STEP_GRAPH_COSTS_H_

#include <cstdint>
#include <vector>

#include "ebb/report.h"
#include "ggml.h"

namespace ebb {

class GraphCosts {
 public:
  // To be made, and Begin() called, right before the graph is computed.
  explicit GraphCosts(const ggml_cgraph* graph);
  void Begin();
  // For ggml_backend_cpu_set_abort_callback(), with this object; never asks to stop.
  static bool NodeDone(void* costs);
  // To be called right after the graph. `io_wait_seconds` lie within attention and are left out.
  [[nodiscard]] StepCosts End(double io_wait_seconds) const;

 private:
  enum class Part : uint8_t { kEmbedding, kMatmul, kAttention, kOther };

  // By question. ggml computes a norm and the product after it as one node, unless it is told not
  // to; how many questions came tells which.
  std::vector<Part> parts_, parts_fused_;
  std::vector<double> done_;
  double start_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_GRAPH_COSTS_H_
