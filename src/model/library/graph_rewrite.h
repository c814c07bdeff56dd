// Replaces libllama's KV cache, in a graph that libllama built, by ebb's own attention.
//
// With flash attention on, every attention over a cache is one GGML_OP_FLASH_ATTN_EXT node, and
// GGML_OP_SET_ROWS stores rows into tensors named cache_k_lN and cache_v_lN. The rewriter relies on
// nothing else. CheckRewritten() then refuses a graph in which any node still reads libllama's
// cache or one of its masks, so that an unknown kind of attention is refused and never computed
// wrongly.
#ifndef EBB_MODEL_LIBRARY_GRAPH_REWRITE_H_
#define EBB_MODEL_LIBRARY_GRAPH_REWRITE_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ebb/status.h"
#include "src/model/library/internals.h"

namespace ebb {

// CacheAttention describes one attention over a cache in libllama's graph.
struct CacheAttention {
  int layer = 0;                // libllama's number of the layer whose rows are read
  ggml_tensor* node = nullptr;  // GGML_OP_FLASH_ATTN_EXT
  ggml_tensor* q = nullptr;     // [key_dim, T, query heads]
  // Holds the GGML_OP_ROPE node from which queries come through views and scales; null: there is
  // none.
  ggml_tensor* turned_q = nullptr;
  ggml_tensor *k = nullptr,
              *v = nullptr;  // [dim * kv heads, T]; null: the layer has its rows already
  ggml_tensor* sinks = nullptr;
  int key_dim = 0, value_dim = 0, num_q_heads = 0, num_kv_heads = 0;
  float scale = 0, soft_cap = 0, alibi_bias = 0;
  bool value_in_key = false;  // values are the first elements of keys
  bool in_window = false;     // by the mask it has
};

// CacheNodes lists the tensors of a finished graph that belong to libllama's cache, and the
// attentions over it.
struct CacheNodes {
  std::map<const ggml_tensor*, std::pair<int, char>> cache;  // tensor -> (layer, 'k' or 'v')
  std::set<const ggml_tensor*> masks, window_masks;
  std::vector<CacheAttention> attentions;  // in the order of the graph
  std::vector<CacheAttention> stores;      // rows (`layer`, `k`, `v`) that no attention reads

  // Returns the layer and the kind ('k' or 'v') of a cache tensor or of a view of one; {-1, 0}: it
  // is neither.
  [[nodiscard]] std::pair<int, char> PlaceOf(const ggml_tensor* tensor) const;
  [[nodiscard]] bool IsMask(const ggml_tensor* tensor) const {
    return masks.contains(tensor) || window_masks.contains(tensor);
  }
};

// Finds the cache nodes of a graph. Errors: Unsupported, for attention of another kind.
[[nodiscard]] Result<CacheNodes> FindCacheNodes(llm_graph_result* built);

struct Products {
  std::vector<const ggml_tensor*> weights;  // that tokens are multiplied with
  // Names a node that multiplies two computed matrices or sums over tokens, whose bits may depend
  // on how many tokens a step has; empty: there is none.
  std::string computed;
};
// Finds the products of a graph. `weights`: all tensors of the model.
[[nodiscard]] Products FindProducts(ggml_cgraph* graph,
                                    const std::unordered_set<const ggml_tensor*>& weights);

// WeightGroups lists groups of weights that the graph multiplies with the same tokens, in the order
// of the graph.
using WeightGroups = std::vector<std::vector<ggml_tensor*>>;
[[nodiscard]] WeightGroups FindWeightGroups(ggml_cgraph* graph,
                                            const std::unordered_set<const ggml_tensor*>& weights);

// Returns the ROPE node whose result, seen through views and reshapes, is `keys`; null: there is
// none.
[[nodiscard]] ggml_tensor* RopeOf(ggml_tensor* keys);

// WeightScales maps weights to their scales, [1] or, for experts, [n].
using WeightScales = std::map<const ggml_tensor*, ggml_tensor*>;

// JoinedRows locates a weight's rows in a joined weight, whose product with a single token is one
// node instead of several. In a small model each node costs a wait of all threads for each other.
struct JoinedRows {
  ggml_tensor* joined = nullptr;
  int64_t first_row = 0;
};
using JoinedWeights = std::unordered_map<const ggml_tensor*, JoinedRows>;

struct RewriteOptions {
  bool one_token_at_a_time = false;  // products take each token as a plane of its own
  // Holds the last tensor to keep: nodes after it in the graph are left out; null: none are.
  const ggml_tensor* last = nullptr;
  // Holds the scales of weights whose products libllama's graph fails to scale; null: it scales
  // all.
  const WeightScales* scales = nullptr;
  const JoinedWeights* joined = nullptr;  // null: there are none
  // Holds a tensor that becomes an input; only its descendants are kept; null: all nodes are.
  ggml_tensor* first = nullptr;
};

// Replacements maps nodes to functions that return a replacement tensor with as many elements,
// which may read a CopyNode() of the node.
using Replacements =
    std::unordered_map<const ggml_tensor*, std::function<ggml_tensor*(ggml_tensor* node)>>;

// Returns a new node that computes the same.
[[nodiscard]] ggml_tensor* CopyNode(const ggml_tensor* node, ggml_context* ctx);

// Rewrites a product of a weight with tokens if ggml's kernels would otherwise give a token other
// bits in planes of several sequences or, with one_token_at_a_time, next to other tokens.
void RewriteProduct(ggml_tensor* node, ggml_context* ctx, bool one_token_at_a_time);

// Writes the nodes of `built` into `graph`, replacing those in `replacements`, among them the
// attentions over libllama's cache; changes nodes of `built`. New tensors are made in `ctx`.
// Errors: Unsupported, naming the operation, if a node still needs libllama's cache or masks.
Status RewriteGraph(llm_graph_result* built, const CacheNodes& nodes, ggml_context* ctx,
                    const RewriteOptions& options, const Replacements& replacements,
                    ggml_cgraph* graph);

}  // namespace ebb

#endif  // EBB_MODEL_LIBRARY_GRAPH_REWRITE_H_
