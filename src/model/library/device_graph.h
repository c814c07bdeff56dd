// Changes a graph of libllama so that a device without access to the host's memory can compute it.
#ifndef EBB_MODEL_LIBRARY_DEVICE_GRAPH_H_
#define EBB_MODEL_LIBRARY_DEVICE_GRAPH_H_

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ebb/status.h"
#include "src/model/library/internals.h"

namespace ebb {

using WeightSet = std::unordered_set<const ggml_tensor*>;
using WeightCopies = std::unordered_map<const ggml_tensor*, ggml_tensor*>;

// RowLookup describes rows of a weight table that an input selects, such as the embeddings of the
// tokens.
struct RowLookup {
  const ggml_tensor* table = nullptr;  // in host memory once the weights are loaded
  ggml_tensor* ids = nullptr;          // I32, an input of libllama's graph
  ggml_tensor* rows = nullptr;         // F32 [columns of the table, ids]
};

// Turns the nodes that look up rows of `weights` by an input into inputs, which the host sets: not
// every backend looks up rows of every type, and tables stay in host memory. Returns the look-ups.
[[nodiscard]] std::vector<RowLookup> TakeLookups(ggml_cgraph* graph, const WeightSet& weights);

// Returns the tensors of `weights` that nodes read, in the order of the graph.
[[nodiscard]] std::vector<ggml_tensor*> WeightsRead(ggml_cgraph* graph, const WeightSet& weights);

// Makes all nodes read the copies of weights. Errors: Unsupported (a weight has no copy).
[[nodiscard]] Status ReadCopies(ggml_cgraph* graph, const WeightSet& weights,
                                const WeightCopies& copies);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_DEVICE_GRAPH_H_
