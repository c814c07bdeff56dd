// Refuses graphs of libllama that ebb cannot run, before any weight is read.
#ifndef EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_
#define EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_

#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/model/gguf_file.h"
#include "src/model/library/device_graph.h"
#include "src/model/library/graph_rewrite.h"
#include "src/model/library/internals.h"

namespace ebb {

// To be called before a graph is built, because builders assert the class of the memory.
[[nodiscard]] Status CheckMemory(const llama_memory_i* memory);

// Unsupported: `what`, in the layer of the attention.
[[nodiscard]] Status Refuse(const CacheAttention& call, std::string_view what);

// Refuses attention that the kernels cannot compute, alone or together with that of the `first`
// layer.
[[nodiscard]] Status CheckAttention(const CacheAttention& call, const CacheAttention& first);

// Whether an attention reads the rows as the one that stored them does.
[[nodiscard]] bool ReadsAlike(const CacheAttention& call, const CacheAttention& stored);

// Refuses soft caps of metadata that the builder of the architecture ignores. caps_scores,
// caps_logits: whether the graph caps any.
[[nodiscard]] Status CheckSoftCaps(const GgufFile& file, const std::string& architecture,
                                   bool caps_scores, bool caps_logits);

// The parameters of a GGML_OP_ROPE node.
struct Rope {
  int dims = 0, mode = 0, original_context = 0;
  float base = 0, scale = 1, ext_factor = 0, attn_factor = 1, beta_fast = 0, beta_slow = 0;
  ggml_tensor* factors = nullptr;

  bool operator==(const Rope& other) const = default;
};

[[nodiscard]] Rope ReadRope(const ggml_tensor* node);

// Refuses weights of types that ggml's kernels assert: of products, and of sums and factors.
[[nodiscard]] Status CheckWeightTypes(ggml_cgraph* graph, const WeightSet& weights);

// ggml's kernels check these at the first step alone, where a failed assertion ends the process.
[[nodiscard]] Status CheckRopes(ggml_cgraph* graph);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_LIBRARY_CHECKS_H_
