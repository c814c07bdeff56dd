// Refuses graphs of libllama that ebb cannot run, before any weight is read.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_
#define EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_

#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/model/library/device_graph.h"
#include "src/model/library/graph_rewrite.h"
#include "src/model/library/internals.h"
#include "src/model/loaded/gguf_file.h"

namespace ebb {

// Checks that libllama's memory is of a supported class. Must be called before a graph is built,
// because builders assert that class.
[[nodiscard]] Status CheckMemory(const llama_memory_i* memory);

// Returns Unsupported, saying that `what` in the attention's layer is not supported.
[[nodiscard]] Status Refuse(const CacheAttention& call, std::string_view what);

// Checks that the kernels can compute an attention, by itself and together with that of the `first`
// layer.
[[nodiscard]] Status CheckAttention(const CacheAttention& call, const CacheAttention& first);

// Returns whether an attention reads the rows in the same way as the attention that stored them.
[[nodiscard]] bool ReadsAlike(const CacheAttention& call, const CacheAttention& stored);

// Refuses soft caps in the metadata that the architecture's builder ignores. caps_scores,
// caps_logits: whether the graph caps any.
[[nodiscard]] Status CheckSoftCaps(const GgufFile& file, const std::string& architecture,
                                   bool caps_scores, bool caps_logits);

// Rope holds the parameters of a GGML_OP_ROPE node.
struct Rope {
  int dims = 0, mode = 0, original_context = 0;
  float base = 0, scale = 1, ext_factor = 0, attn_factor = 1, beta_fast = 0, beta_slow = 0;
  ggml_tensor* factors = nullptr;

  bool operator==(const Rope& other) const = default;
};

[[nodiscard]] Rope ReadRope(const ggml_tensor* node);

// Refuses weights of types for which ggml's kernels would fail an assertion, in products, sums or
// factors.
[[nodiscard]] Status CheckWeightTypes(ggml_cgraph* graph, const WeightSet& weights);

// Checks the parameters of RoPE nodes. ggml's kernels check them only at the first step, where a
// failed assertion ends the process.
[[nodiscard]] Status CheckRopes(ggml_cgraph* graph);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_
