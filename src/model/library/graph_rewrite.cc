#include "src/model/library/graph_rewrite.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

const ggml_tensor* RootOf(const ggml_tensor* tensor) {
  return tensor->view_src == nullptr ? tensor : tensor->view_src;
}

bool IsViewOp(const ggml_tensor* tensor) {
  return tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_RESHAPE ||
         tensor->op == GGML_OP_PERMUTE || tensor->op == GGML_OP_TRANSPOSE;
}

// Returns whether a tensor is a weight: weights are the leaves that have a buffer before the graph
// is allocated.
bool IsWeight(const ggml_tensor* tensor) {
  const ggml_tensor* root = RootOf(tensor);
  return root->op == GGML_OP_NONE && root->buffer != nullptr;
}

void AddMasks(llm_graph_input_i* input, CacheNodes* nodes) {
  const auto add_kv = [nodes](const llm_graph_input_attn_kv* kv) {
    nodes->masks.insert(kv->self_kq_mask);
  };
  const auto add_windows = [nodes](const llm_graph_input_attn_kv_iswa* kv) {
    nodes->masks.insert(kv->self_kq_mask);
    nodes->window_masks.insert(kv->self_kq_mask_swa);
  };
  if (const auto* kv = dynamic_cast<llm_graph_input_attn_kv*>(input)) add_kv(kv);
  if (const auto* k = dynamic_cast<llm_graph_input_attn_k*>(input)) {
    nodes->masks.insert(k->self_kq_mask);
  }
  if (const auto* kv = dynamic_cast<llm_graph_input_attn_kv_iswa*>(input)) add_windows(kv);
  if (const auto* k = dynamic_cast<llm_graph_input_attn_k_iswa*>(input)) {
    nodes->masks.insert(k->self_kq_mask);
    nodes->window_masks.insert(k->self_kq_mask_swa);
  }
  if (const auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid*>(input)) {
    add_kv(hybrid->get_attn());
  }
  if (const auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid_k*>(input)) {
    nodes->masks.insert(hybrid->get_attn()->self_kq_mask);
  }
  if (const auto* hybrid = dynamic_cast<llm_graph_input_mem_hybrid_iswa*>(input)) {
    add_windows(hybrid->get_attn());
  }
}

void AddCacheTensors(ggml_cgraph* graph, CacheNodes* nodes) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    for (const ggml_tensor* source : ggml_graph_node(graph, i)->src) {
      if (source == nullptr) continue;
      const ggml_tensor* root = RootOf(source);
      int layer = 0;
      char kind = 0;
      if (std::sscanf(root->name, "cache_%c_l%d", &kind, &layer) == 2 &&
          (kind == 'k' || kind == 'v')) {
        nodes->cache[root] = {layer, kind};
      }
    }
  }
}

// Returns the ROPE node from which queries come; null: there is none.
ggml_tensor* RopeOfQueries(ggml_tensor* q) {
  while (q != nullptr && (IsViewOp(q) || q->op == GGML_OP_CONT || q->op == GGML_OP_SCALE)) {
    q = q->src[0];
  }
  return q != nullptr && q->op == GGML_OP_ROPE ? q : nullptr;
}

Result<CacheAttention> ReadAttention(ggml_tensor* node, const CacheNodes& nodes) {
  const auto [layer, kind] = nodes.PlaceOf(node->src[1]);
  const auto [value_layer, value_kind] = nodes.PlaceOf(node->src[2]);
  std::array<float, 3> params = {};
  std::memcpy(params.data(), node->op_params, sizeof(params));
  CacheAttention call = {.layer = layer,
                         .node = node,
                         .q = node->src[0],
                         .turned_q = RopeOfQueries(node->src[0]),
                         .sinks = node->src[4],
                         .key_dim = static_cast<int>(node->src[1]->ne[0]),
                         .value_dim = static_cast<int>(node->src[2]->ne[0]),
                         .num_q_heads = static_cast<int>(node->src[0]->ne[2]),
                         .num_kv_heads = static_cast<int>(node->src[1]->ne[2]),
                         .scale = params[0],
                         .soft_cap = params[2],
                         .alibi_bias = params[1],
                         .value_in_key = value_kind == 'k'};
  if (kind != 'k' || value_layer != layer) {
    return Unsupported(fmt::format("layer {} attends to values of another layer", layer));
  }
  call.in_window = nodes.window_masks.contains(node->src[3]);
  if (!call.in_window && !nodes.masks.contains(node->src[3])) {
    return Unsupported(fmt::format("layer {} has sparse attention, with a computed mask", layer));
  }
  if (call.q->type != GGML_TYPE_F32 || call.q->ne[3] != 1) {
    return Unsupported(fmt::format("layer {} has queries of an unexpected shape", layer));
  }
  return call;
}

// Makes `node` a view of `of`, which has as many elements, so that the nodes that read `node` need
// no change.
void BecomeViewOf(ggml_tensor* node, ggml_tensor* of) {
  if ((node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) ggml_set_output(of);
  node->op = GGML_OP_VIEW;
  std::memset(node->op_params, 0, sizeof(node->op_params));
  std::memset(node->src, 0, sizeof(node->src));
  node->src[0] = of;
  node->view_src = of->view_src == nullptr ? of : of->view_src;
  node->view_offs = of->view_src == nullptr ? 0 : of->view_offs;
}

// Multiplies a product, with a weight or with the chosen experts' weights, by the weight's scale.
void ScaleProduct(ggml_tensor* node, ggml_tensor* chosen, ggml_tensor* scale, ggml_context* ctx) {
  ggml_tensor* const product = CopyNode(node, ctx);
  if (chosen != nullptr) {
    const int64_t num_experts = ggml_nelements(scale);
    scale = ggml_reshape_3d(ctx, scale, 1, num_experts, 1);
    scale = ggml_repeat_4d(ctx, scale, 1, num_experts, chosen->ne[1], 1);
    scale = ggml_get_rows(ctx, scale, chosen);  // [1, experts of a token, T]
  }
  BecomeViewOf(node, ggml_mul(ctx, product, scale));
}

// Returns the nodes that depend on a tensor.
std::unordered_set<const ggml_tensor*> DescendantsOf(const ggml_tensor* tensor,
                                                     ggml_cgraph* graph) {
  std::unordered_set<const ggml_tensor*> found = {tensor};
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    for (const ggml_tensor* source : node->src) {
      if (source != nullptr && found.contains(source)) found.insert(node);
    }
  }
  found.erase(tensor);
  return found;
}

Status CheckRewritten(ggml_cgraph* graph, const CacheNodes& nodes) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    bool reads_cache = nodes.PlaceOf(node).first >= 0;
    for (const ggml_tensor* source : node->src) {
      reads_cache = reads_cache || (source != nullptr &&
                                    (nodes.PlaceOf(source).first >= 0 || nodes.IsMask(source)));
    }
    if (reads_cache) {
      return Unsupported(fmt::format("attention by the operation {}, which ebb cannot replace",
                                     ggml_op_name(node->op)));
    }
  }
  return OkStatus();
}

// Returns whether a node selects all tokens in their order, which it does in a step that outputs
// every token.
bool SelectsAll(const ggml_tensor* node, const ggml_tensor* ids) {
  return node->op == GGML_OP_GET_ROWS && node->src[1] == ids && ids->ne[0] == node->src[0]->ne[1] &&
         ggml_is_contiguous(node->src[0]);
}

// SelectedProduct is a product with a weight, possibly with a bias, from which the next node
// selects the rows of some tokens.
struct SelectedProduct {
  ggml_tensor* product = nullptr;
  ggml_tensor* sum = nullptr;  // with the bias; null: there is none
};

// Finds the products from which `ids` selects some rows and which nothing else reads, by the
// selecting node. libllama multiplies all tokens there; the rewriter multiplies only the selected
// ones.
std::unordered_map<const ggml_tensor*, SelectedProduct> FindSelectedProducts(
    ggml_cgraph* graph, const ggml_tensor* ids) {
  std::unordered_map<const ggml_tensor*, int> readers;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    for (const ggml_tensor* source : ggml_graph_node(graph, i)->src) ++readers[source];
  }
  std::unordered_map<const ggml_tensor*, SelectedProduct> found;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_GET_ROWS || node->src[1] != ids || SelectsAll(node, ids)) continue;
    ggml_tensor* product = node->src[0];
    ggml_tensor* sum = nullptr;
    if (product->op == GGML_OP_ADD && IsWeight(product->src[1]) && readers[product] == 1) {
      sum = product;
      product = sum->src[0];
    }
    if (product->op == GGML_OP_MUL_MAT && IsWeight(product->src[0]) && readers[product] == 1 &&
        product->src[0]->ne[2] == 1 && ggml_is_matrix(product->src[1])) {
      found[node] = {.product = product, .sum = sum};
    }
  }
  return found;
}

// Returns the input that selects the tokens whose outputs are wanted; null: there is none.
const ggml_tensor* OutputIds(const llm_graph_result& built) {
  for (const auto& input : built.inputs) {
    const auto* outputs = dynamic_cast<const llm_graph_input_out_ids*>(input.get());
    if (outputs != nullptr) return outputs->out_ids;
  }
  return nullptr;
}

}  // namespace

ggml_tensor* CopyNode(const ggml_tensor* node, ggml_context* ctx) {
  ggml_tensor* const copy = ggml_dup_tensor(ctx, node);
  copy->op = node->op;
  std::memcpy(copy->op_params, node->op_params, sizeof(node->op_params));
  std::memcpy(copy->src, node->src, sizeof(node->src));
  copy->view_src = node->view_src;
  copy->view_offs = node->view_offs;
  return copy;
}

// Makes the bits of a token's product independent of the other tokens. ggml multiplies plane by
// plane, and uses the kernels for a single token in a plane of one column. So the tokens of several
// sequences, which libllama puts into planes, become one plane; with one_token_at_a_time, each
// token becomes a plane of its own. For F32 weights, ggml also chooses other kernels if the input
// has gaps, which are closed here, and for several planes of one column, as with a weight per head;
// products by a weight per head get a plane per token in every step.
void RewriteProduct(ggml_tensor* node, ggml_context* ctx, bool one_token_at_a_time) {
  ggml_tensor* const weight = node->src[0];
  if (!IsWeight(weight)) return;
  const bool is_f32 = weight->type == GGML_TYPE_F32;
  if (is_f32 && weight->ne[2] == 1 && !ggml_is_contiguous(node->src[1])) {
    node->src[1] = ggml_cont(ctx, node->src[1]);
  }
  ggml_tensor* const x = node->src[1];
  const bool joins = weight->ne[2] == 1 && x->ne[2] > 1 && ggml_is_contiguous(x);
  const bool splits =
      (one_token_at_a_time && !HasSameBitsInBatches(*weight)) || (is_f32 && weight->ne[2] > 1);
  if (!joins && !splits) return;
  if (weight->ne[2] == 1 && ggml_is_contiguous(x)) {
    ggml_tensor* flat = ggml_reshape_2d(ctx, x, x->ne[0], ggml_nrows(x));
    if (splits) flat = ggml_reshape_3d(ctx, flat, flat->ne[0], 1, flat->ne[1]);
    BecomeViewOf(node, ggml_mul_mat(ctx, weight, flat));
    return;
  }
  // A weight for each head: [K, T, heads] becomes [K, 1, heads, T], and the product is permuted
  // back.
  if (!splits || weight->ne[2] != x->ne[2] || x->ne[3] != 1 || x->ne[1] == 1) return;
  ggml_tensor* planes =
      ggml_view_4d(ctx, x, x->ne[0], 1, x->ne[2], x->ne[1], x->nb[1], x->nb[2], x->nb[1], 0);
  ggml_tensor* product = ggml_reshape_3d(ctx, ggml_mul_mat(ctx, weight, planes), node->ne[0],
                                         node->ne[2], node->ne[1]);
  BecomeViewOf(node, ggml_cont(ctx, ggml_permute(ctx, product, 0, 2, 1, 3)));
}

std::pair<int, char> CacheNodes::PlaceOf(const ggml_tensor* tensor) const {
  const auto found = cache.find(RootOf(tensor));
  return found == cache.end() ? std::pair<int, char>{-1, 0} : found->second;
}

ggml_tensor* RopeOf(ggml_tensor* keys) {
  while (keys != nullptr && (keys->op == GGML_OP_VIEW || keys->op == GGML_OP_RESHAPE)) {
    keys = keys->src[0];
  }
  return keys != nullptr && keys->op == GGML_OP_ROPE ? keys : nullptr;
}

Products FindProducts(ggml_cgraph* graph, const std::unordered_set<const ggml_tensor*>& weights) {
  Products products;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    const bool multiplies = node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_OUT_PROD ||
                            node->op == GGML_OP_SOLVE_TRI || node->op == GGML_OP_CUMSUM;
    if (!multiplies) continue;
    const ggml_tensor* weight = RootOf(node->src[0]);
    if (weights.contains(weight)) {
      products.weights.push_back(weight);
    } else if (products.computed.empty()) {
      products.computed = node->name;
    }
  }
  return products;
}

WeightGroups FindWeightGroups(ggml_cgraph* graph,
                              const std::unordered_set<const ggml_tensor*>& weights) {
  WeightGroups groups;
  std::unordered_map<const ggml_tensor*, size_t> group_of;  // by the tokens
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_MUL_MAT || !weights.contains(node->src[0])) continue;
    const auto [group, is_new] = group_of.try_emplace(node->src[1], groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].push_back(node->src[0]);
  }
  std::erase_if(groups, [](const auto& group) { return group.size() < 2; });
  return groups;
}

Result<CacheNodes> FindCacheNodes(llm_graph_result* built) {
  CacheNodes nodes;
  ggml_cgraph* const graph = built->get_gf();
  AddCacheTensors(graph, &nodes);
  for (const auto& input : built->inputs) AddMasks(input.get(), &nodes);
  nodes.masks.erase(nullptr);
  nodes.window_masks.erase(nullptr);
  std::map<int, std::pair<ggml_tensor*, ggml_tensor*>> stored;  // k and v, by layer
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op == GGML_OP_SET_ROWS && nodes.PlaceOf(node).first >= 0) {
      const auto [layer, kind] = nodes.PlaceOf(node);
      (kind == 'k' ? stored[layer].first : stored[layer].second) = node->src[0];
    } else if (node->op == GGML_OP_FLASH_ATTN_EXT && nodes.PlaceOf(node->src[1]).first >= 0) {
      EBB_ASSIGN_OR_RETURN(CacheAttention call, ReadAttention(node, nodes));
      std::tie(call.k, call.v) = stored[call.layer];
      stored.erase(call.layer);
      nodes.attentions.push_back(call);
    }
  }
  for (const auto& [layer, rows] : stored) {
    nodes.stores.push_back({.layer = layer, .k = rows.first, .v = rows.second});
  }
  return nodes;
}

namespace {

// Rewriter makes one pass over the nodes of libllama's graph.
class Rewriter {
 public:
  Rewriter(llm_graph_result* built, const CacheNodes& nodes, ggml_context* ctx,
           const RewriteOptions& options, const Replacements& replacements)
      : source_(built->get_gf()),
        nodes_(nodes),
        ctx_(ctx),
        options_(options),
        replacements_(replacements),
        output_ids_(OutputIds(*built)) {
    if (options.last != nullptr) left_out_ = DescendantsOf(options.last, source_);
    if (options.first != nullptr) kept_ = DescendantsOf(options.first, source_);
    selected_ = FindSelectedProducts(source_, output_ids_);
    for (const auto& [select, product] : selected_) {
      left_out_.insert(product.product);
      if (product.sum != nullptr) left_out_.insert(product.sum);
    }
  }

  void Write(ggml_cgraph* graph) {
    for (int i = 0; i < ggml_graph_n_nodes(source_); ++i) {
      ggml_tensor* const node = ggml_graph_node(source_, i);
      if (left_out_.contains(node) || (options_.first != nullptr && !kept_.contains(node)))
        continue;
      // A step without outputs ends in nodes that compute nothing; they are left out.
      if (ggml_is_empty(node)) continue;
      const bool is_of_cache = nodes_.PlaceOf(node).first >= 0;
      if (is_of_cache && (node->op == GGML_OP_SET_ROWS || IsViewOp(node))) continue;
      Rewrite(node);
      ggml_build_forward_expand(graph, node);
    }
  }

 private:
  void Rewrite(ggml_tensor* node) {
    if (const auto found = replacements_.find(node); found != replacements_.end()) {
      BecomeViewOf(node, found->second(node));
    } else if (SelectsAll(node, output_ids_)) {
      BecomeViewOf(node, node->src[0]);
    } else if (const auto selected = selected_.find(node); selected != selected_.end()) {
      BecomeViewOf(node, SelectFirst(node->src[1], selected->second));
    } else if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
      RewriteWeightProduct(node);
    }
  }

  // Returns the product of the selected tokens alone.
  ggml_tensor* SelectFirst(ggml_tensor* ids, const SelectedProduct& selected) {
    ggml_tensor* const x = ggml_get_rows(ctx_, selected.product->src[1], ids);
    ggml_tensor* const product = ggml_mul_mat(ctx_, selected.product->src[0], x);
    std::memcpy(product->op_params, selected.product->op_params, sizeof(product->op_params));
    RewriteWeightProduct(product);
    return selected.sum == nullptr ? product : ggml_add(ctx_, product, selected.sum->src[1]);
  }

  // Returns whether a node multiplies a single token with a part of a joined weight.
  [[nodiscard]] bool IsJoined(const ggml_tensor* node) const {
    const ggml_tensor* const weight = node->src[0];
    return options_.joined != nullptr && node->op == GGML_OP_MUL_MAT &&
           options_.joined->contains(weight) && ggml_nrows(node->src[1]) == 1 &&
           ggml_is_contiguous(node->src[1]) &&
           (options_.scales == nullptr || !options_.scales->contains(weight));
  }
  void JoinProduct(ggml_tensor* node) {
    const JoinedRows& rows = options_.joined->at(node->src[0]);
    ggml_tensor*& product = joined_products_[{rows.joined, node->src[1]}];
    if (product == nullptr) {
      product = ggml_mul_mat(ctx_, rows.joined, node->src[1]);
      std::memcpy(product->op_params, node->op_params, sizeof(node->op_params));
    }
    BecomeViewOf(node, product);
    node->view_offs += rows.first_row * sizeof(float);
  }

  void RewriteWeightProduct(ggml_tensor* node) {
    ggml_tensor* const weight = node->src[0];
    ggml_tensor* const chosen = node->op == GGML_OP_MUL_MAT_ID ? node->src[2] : nullptr;
    if (IsJoined(node)) return JoinProduct(node);
    if (chosen == nullptr) RewriteProduct(node, ctx_, options_.one_token_at_a_time);
    if (options_.scales != nullptr && options_.scales->contains(weight)) {
      ScaleProduct(node, chosen, options_.scales->at(weight), ctx_);
    }
  }

  ggml_cgraph* const source_;
  const CacheNodes& nodes_;
  ggml_context* const ctx_;
  const RewriteOptions& options_;
  const Replacements& replacements_;
  const ggml_tensor* const output_ids_;
  std::unordered_set<const ggml_tensor*> left_out_, kept_;
  std::unordered_map<const ggml_tensor*, SelectedProduct> selected_;
  // Holds the products of joined weights, by the weight and the token.
  std::map<std::pair<const ggml_tensor*, const ggml_tensor*>, ggml_tensor*> joined_products_;
};

}  // namespace

Status RewriteGraph(llm_graph_result* built, const CacheNodes& nodes, ggml_context* ctx,
                    const RewriteOptions& options, const Replacements& replacements,
                    ggml_cgraph* graph) {
  Rewriter(built, nodes, ctx, options, replacements).Write(graph);
  return CheckRewritten(graph, nodes);
}

}  // namespace ebb
