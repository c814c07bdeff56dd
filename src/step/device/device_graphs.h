// DeviceGraphs builds the graphs of a device's steps, over weights in the device's memory, and
// keeps those of the last shapes, each with the lists of rows that its nodes read.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_GRAPHS_H_
#define EBB_STEP_DEVICE_DEVICE_GRAPHS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/device/backend_device.h"
#include "src/step/device/backend_attention.h"
#include "src/step/device/compressed_lists.h"
#include "src/step/device/device_weights.h"
#include "src/step/device/graph_part.h"
#include "src/step/device/page_lists.h"
#include "src/step/device/row_lists.h"
#include "src/step/work/graph_cache.h"
#include "src/step/work/step_work.h"

namespace ebb {

// Return whether any sequence's selector chooses rows in the step, and whether the host attends to
// rows of any.
[[nodiscard]] bool Selects(const StepWork& work);
[[nodiscard]] bool HostAttends(const StepWork& work);
// Returns whether a single new token does not see some of the cache's rows, which a window hides.
[[nodiscard]] bool HidesRows(const SequenceCache& cache, int num_layers);

struct DeviceGraph {
  struct Shape {
    DecoderGraphOptions options;
    std::vector<BackendSequence> sequences;  // in the order of their tokens
    BackendAttention::Wanted wanted;
    [[nodiscard]] bool operator==(const Shape&) const = default;
  };
  // Lists holds the lists of one sequence's rows (by row or by page), and of its rows of T2.
  struct Lists {
    std::optional<RowLists> rows;
    std::optional<PageLists> pages;
    std::optional<CompressedLists> compressed;
    std::shared_ptr<RankStore> ranks;  // null unless the device ranks for its selector
  };

  // Returns the index of the sequence in shape.sequences, lists and tensors.sequences.
  [[nodiscard]] size_t IndexOf(const SequenceStep& sequence) const;
  // Cuts the graph into `parts` as tensors.cuts says, if it is not cut yet.
  void MakeParts();

  Shape shape;
  BackendTensors tensors;
  std::vector<Lists> lists;  // [sequences]
  std::unique_ptr<ggml_context, GgmlDeleter> list_context;
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> list_buffer;
  std::unique_ptr<BackendAttention> attention;
  std::unique_ptr<ggml_context, GgmlDeleter> context;
  DecoderGraph graph;
  std::vector<GraphPart> parts;
};

class DeviceGraphs {
 public:
  // Makes builders of graphs of `model` for `device`. REQUIRES: both outlive this.
  DeviceGraphs(const LoadedModel& model, BackendDevice* device, const AttentionShape& shape);
  // Copies the model's weights to the device. Must be called once, before all else. Errors: the
  // errors of DeviceWeights.
  Status CopyWeights();

  enum class RowsBelowT0 { kNone, kOnHost, kCompressed };  // kOnHost: T1, or T2 on the host
  // Builds the graph of a step of `num_tokens` tokens, with mass, to find out early whether the
  // backend has all operations. Errors: Unsupported, naming the missing operation. Operations that
  // only some steps need (hidden states, heads that see different rows) are checked when such a
  // step comes.
  Status Check(int num_tokens, RowsBelowT0 below);
  // Drops all graphs and resets the count of graphs built.
  void Clear() { graphs_.Clear(); }

  // Returns the graph of the step, with its tensors in the device's memory. The graph used before
  // loses that memory, but keeps its lists. Errors: OutOfMemory; Unsupported as Check().
  Result<DeviceGraph*> For(const StepWork& work);
  // Makes the next step upload all lists and the vectors of selectors again.
  void Forget();
  // Returns whether rows of T2 lie in the device's memory.
  [[nodiscard]] bool HoldsT2() const {
    return own_nodes_.records.head_dim > 0 || shape_.compressed.in_ggml_blocks;
  }
  [[nodiscard]] size_t weight_bytes() const { return weights_->num_bytes(); }
  [[nodiscard]] int64_t num_built() const { return graphs_.num_built(); }
  void Leak();  // called after the device was lost: frees nothing

 private:
  using Shape = DeviceGraph::Shape;

  // Chooses how the sequence attends, by its number of tokens and whether the host adds to it.
  void ChooseAttention(BackendSequence* sequence) const;
  [[nodiscard]] BackendSequence Describe(const SequenceStep& sequence) const;
  [[nodiscard]] Shape ShapeOf(const StepWork& work) const;
  // Returns the options for a graph of `shape`. REQUIRES: `shape` has its sequences and its
  // followers.
  [[nodiscard]] DecoderGraphOptions OptionsFor(const Shape& shape, int num_tokens,
                                               int num_outputs) const;
  // Finds a store on the device for the vectors of each selector; without memory for it, the host
  // computes the selector's products.
  void UseRankStores(Shape* shape);
  // Builds the graph of a shape over `rows`, which is BackendDevice::rows(). If `rows` is null, the
  // device has no rows yet, and the graph serves only to check operations.
  Result<DeviceGraph*> Build(const Shape& shape, ggml_tensor* rows);
  Status MakeLists(DeviceGraph* graph) const;
  // Makes the next step upload all lists again.
  void ForgetLists();
  [[nodiscard]] Status CheckSupported(const DeviceGraph& graph) const;

  const LoadedModel& model_;
  BackendDevice* const device_;
  const AttentionShape shape_;
  const bool runs_row_attention_;  // ebb's own nodes attend for single tokens
  const OwnNodes own_nodes_;
  std::unique_ptr<DeviceWeights> weights_;
  GraphCache<DeviceGraph> graphs_;
  RankStores rank_stores_;
  uint64_t rows_generation_ = 0;  // the device's generation() when graphs were built
  uint64_t num_frees_ = 0;        // the device's num_frees() when lists were made
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_GRAPHS_H_
