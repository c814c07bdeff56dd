// Attention as a backend's own operations, over rows that lie anywhere in its memory: rows are
// gathered by lists, in order of position, and read by flash attention, so that results depend on
// which rows are visible and not on where they lie. Mass, where it is wanted, comes from a pass of
// its own.
#ifndef EBB_STEP_BACKEND_ATTENTION_H_
#define EBB_STEP_BACKEND_ATTENTION_H_

#include <vector>

#include "ebb/policy.h"
#include "src/device/backend_device.h"
#include "src/model/decoder_graph.h"
#include "src/model/loaded_model.h"

namespace ebb {

// What of a sequence decides about a graph.
struct BackendSequence {
  int first_token = 0;  // of the step
  int num_tokens = 0;
  int num_rows = 0;  // of the longest list of any kv head, rounded up
  // One mask for all layers and kv heads: all see as many rows, alike.
  bool is_uniform = false;
  bool in_pages = false;  // rows are gathered by whole pages, whose numbers the lists have
  enum class Mass { kNone, kPerKvHead, kPerQueryHead };
  Mass mass = Mass::kNone;

  [[nodiscard]] bool operator==(const BackendSequence&) const = default;
};

// The longest list, rounded up so: flash attention is fastest on such lengths, and a graph serves
// many steps.
inline constexpr int kRowsOfBackendStep = 256;

// What the nodes of a graph read besides activations, and leave.
struct BackendTensors {
  // I32 [sum of the layers' tokens * kv heads]: rows that the step writes, by layer, token and kv
  // head.
  ggml_tensor* new_rows = nullptr;
  struct OfSequence {
    // I32 [sum of the layers' num_rows * kv heads]: by layer, row and kv head; of pages, as many
    // over kRowsPerPage, by layer, kv head and page. Lies in a buffer of its own, so that it stays
    // from step to step.
    ggml_tensor* lists = nullptr;
    // F16: [num_rows, tokens], or by layer [num_rows, tokens, 1, kv heads].
    ggml_tensor* mask = nullptr;
    // By layer, F32 [num_rows, kv heads or query heads]; null unless wanted.
    std::vector<ggml_tensor*> mass;
  };
  std::vector<OfSequence> sequences;
  // By layer: how many nodes come before the first that reads rows of it.
  std::vector<int> cuts;
  // By layer, [head_dim, heads, T], F32; empty unless wanted.
  std::vector<ggml_tensor*> q, k, v, k_before_rope;
};

class BackendAttention final : public AttentionBuilder {
 public:
  struct Wanted {
    bool keys = false, values = false, queries = false;
    [[nodiscard]] bool operator==(const Wanted&) const = default;
  };
  // tensors: has the inputs, and gets the rest. All outlive the graph.
  BackendAttention(const LoadedModel& model, const BackendDevice& device,
                   const std::vector<BackendSequence>& sequences, const Wanted& wanted,
                   BackendTensors* tensors);

  ggml_tensor* Attend(ggml_context* ctx, ggml_cgraph* graph, int layer, ggml_tensor* q,
                      ggml_tensor* k, ggml_tensor* v, ggml_tensor* k_before_rope) override;

  // Elements before layer `layer` in lists with one element a kv head: of all layers for
  // num_layers.
  [[nodiscard]] int64_t FirstHead(int layer) const { return first_head_[layer]; }
  // The nodes that a layer may have.
  [[nodiscard]] static int NodesPerLayer(size_t num_sequences) {
    return 24 + 28 * static_cast<int>(num_sequences);
  }

 private:
  ggml_tensor* AttendSequence(ggml_context* ctx, ggml_cgraph* graph, int layer, size_t index,
                              ggml_tensor* q, ggml_tensor* keys, ggml_tensor* values);
  // The sequence's rows, F16 [head_dim, num_rows, 1, kv heads].
  ggml_tensor* Gather(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* GatherPages(ggml_context* ctx, int layer, size_t index, ggml_tensor* rows) const;
  ggml_tensor* Mask(ggml_context* ctx, int layer, size_t index) const;
  void KeepMass(ggml_context* ctx, ggml_cgraph* graph, size_t index, ggml_tensor* q, ggml_tensor* k,
                ggml_tensor* mask);

  const LoadedModel& model_;
  const BackendDevice& device_;
  const std::vector<BackendSequence>& sequences_;
  const Wanted wanted_;
  BackendTensors* const tensors_;
  std::vector<int64_t> first_head_;  // [layers + 1]
};

}  // namespace ebb

#endif  // EBB_STEP_BACKEND_ATTENTION_H_
