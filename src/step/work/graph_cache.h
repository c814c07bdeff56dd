// GraphCache keeps the ggml graphs of recent steps by their shape. GraphBuffers holds the tensors
// of one graph at a time, so that all graphs share one compute buffer.
#ifndef EBB_STEP_WORK_GRAPH_CACHE_H_
#define EBB_STEP_WORK_GRAPH_CACHE_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>

#include "src/base/ggml_deleter.h"
#include "src/base/sanitizers.h"

namespace ebb {

// GraphContexts are the contexts that hold the tensors of a graph; the second may be null.
using GraphContexts = std::array<ggml_context*, 2>;

// Returns a context for a graph of `max_nodes` nodes, with `per_node` tensors for each node,
// because views and inputs are tensors too. Null: out of memory.
[[nodiscard]] std::unique_ptr<ggml_context, GgmlDeleter> MakeGraphContext(size_t max_nodes,
                                                                          size_t per_node);

// GraphBuffers is the compute buffer. It keeps the size of the largest graph that it has held, so
// that computing a graph again allocates no memory.
class GraphBuffers {
 public:
  explicit GraphBuffers(ggml_backend_buffer_type* type) : type_(type) {}

  // Places the tensors of a graph in the buffer; the tensors of the graph held before lose their
  // contents. Returns false, with the buffer freed, if memory does not suffice.
  [[nodiscard]] bool Hold(const GraphContexts& contexts, ggml_cgraph* graph);
  // Forgets that the buffer holds this graph. Must be called before the graph is destroyed.
  void Forget(const ggml_cgraph* graph) {
    if (held_ == graph) held_ = nullptr;
  }
  // Frees the buffer.
  void Free() {
    held_ = nullptr;
    buffers_.reset();
  }
  void Leak() { ebb::Leak(&buffers_); }  // called after the device was lost: frees nothing

 private:
  ggml_backend_buffer_type* const type_;
  std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers_;  // null: no graph was held yet
  const ggml_cgraph* held_ = nullptr;
};

// GraphCache keeps graphs, the most recently used first. `Graph` is a struct with a `shape`, the
// `context` of its tensors and the DecoderGraph `graph`.
template <typename Graph>
class GraphCache {
 public:
  explicit GraphCache(ggml_backend_buffer_type* type) : buffers_(type) {}

  // Returns the graph of a shape and makes it the most recently used one. Null: there is none.
  template <typename Shape>
  Graph* Find(const Shape& shape) {
    const auto found = std::ranges::find(graphs_, shape, &Graph::shape);
    if (found == graphs_.end()) return nullptr;
    graphs_.splice(graphs_.begin(), graphs_, found);
    return &graphs_.front();
  }
  // Adds a graph, the only element of `made`, as the most recently used one and returns it.
  Graph* Add(std::list<Graph> made) {
    ++num_built_;
    graphs_.splice(graphs_.begin(), made);
    return &graphs_.front();
  }
  // Drops the least recently used of the graphs that `is_alike` accepts if there are `most` of
  // them.
  template <typename Predicate>
  void MakeRoom(size_t most, const Predicate& is_alike) {
    if (static_cast<size_t>(std::ranges::count_if(graphs_, is_alike)) < most) return;
    const auto last = std::prev(std::find_if(graphs_.rbegin(), graphs_.rend(), is_alike).base());
    buffers_.Forget(last->graph.graph);
    graphs_.erase(last);
  }
  template <typename Predicate>
  void DropIf(const Predicate& predicate) {
    graphs_.remove_if([&](const Graph& graph) {
      if (!predicate(graph)) return false;
      buffers_.Forget(graph.graph.graph);
      return true;
    });
  }
  // Drops all graphs and resets the count of graphs built.
  void Clear() {
    DropIf([](const Graph&) { return true; });
    num_built_ = 0;
  }
  // Places the graph's tensors in the compute buffer, as GraphBuffers::Hold() does.
  [[nodiscard]] bool Hold(const Graph& graph) {
    return buffers_.Hold({graph.context.get(), graph.graph.other_context}, graph.graph.graph);
  }
  // Returns the most recently used graph. REQUIRES: a graph was added.
  [[nodiscard]] const Graph& last_used() const { return graphs_.front(); }
  [[nodiscard]] std::list<Graph>& graphs() { return graphs_; }
  [[nodiscard]] GraphBuffers& buffers() { return buffers_; }
  [[nodiscard]] int64_t num_built() const { return num_built_; }

 private:
  GraphBuffers buffers_;
  std::list<Graph> graphs_;
  int64_t num_built_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_WORK_GRAPH_CACHE_H_
