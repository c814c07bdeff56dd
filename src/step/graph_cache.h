// The graphs of the last shapes of steps, most recently used first, and the memory that their
// tensors share.
#ifndef EBB_STEP_GRAPH_CACHE_H_
#define EBB_STEP_GRAPH_CACHE_H_

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

// The contexts that hold the tensors of a graph; null: there is one alone.
using GraphContexts = std::array<ggml_context*, 2>;

// Returns a context for the tensors of a graph of so many nodes, `per_node` for each: views and
// inputs are tensors too. Null when there is no memory.
[[nodiscard]] std::unique_ptr<ggml_context, GgmlDeleter> MakeGraphContext(size_t max_nodes,
                                                                          size_t per_node);

// Memory for the tensors of one graph at a time: as large as the largest graph needs, so that none
// touches new memory.
class GraphBuffers {
 public:
  explicit GraphBuffers(ggml_backend_buffer_type* type) : type_(type) {}

  // Gives the tensors of a graph memory, which those of the graph before lose. Returns false when
  // there is not enough.
  [[nodiscard]] bool Hold(const GraphContexts& contexts, ggml_cgraph* graph);
  // Forgets a graph, which goes.
  void Forget(const ggml_cgraph* graph) {
    if (held_ == graph) held_ = nullptr;
  }
  // Gives the memory back.
  void Free() {
    held_ = nullptr;
    buffers_.reset();
  }
  void Leak() { ebb::Leak(&buffers_); }

 private:
  ggml_backend_buffer_type* const type_;
  std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers_;  // null: nothing was held yet
  const ggml_cgraph* held_ = nullptr;
};

// Graph: a struct with a `shape`, the `context` of its tensors and the DecoderGraph `graph`.
template <typename Graph>
class GraphCache {
 public:
  explicit GraphCache(ggml_backend_buffer_type* type) : buffers_(type) {}

  // Returns the graph of a shape, which is the most recently used one then; null: there is none.
  template <typename Shape>
  Graph* Find(const Shape& shape) {
    const auto found = std::ranges::find(graphs_, shape, &Graph::shape);
    if (found == graphs_.end()) return nullptr;
    graphs_.splice(graphs_.begin(), graphs_, found);
    return &graphs_.front();
  }
  // Adds the graph of a list of one.
  Graph* Add(std::list<Graph> made) {
    ++num_built_;
    graphs_.splice(graphs_.begin(), made);
    return &graphs_.front();
  }
  // Drops the least recently used of the graphs that `is_alike` accepts, if there are `most`.
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
  // Drops all graphs, as if none had been built.
  void Clear() {
    DropIf([](const Graph&) { return true; });
    num_built_ = 0;
  }
  [[nodiscard]] bool Hold(const Graph& graph) {
    return buffers_.Hold({graph.context.get(), graph.graph.other_context}, graph.graph.graph);
  }
  // REQUIRES: a graph was added.
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

#endif  // EBB_STEP_GRAPH_CACHE_H_
