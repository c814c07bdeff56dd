#include "src/model/library/graph_rewrite.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <tuple>
#include <unordered_set>

#include "src/model/product_layout.h"

namespace ebb {
namespace {

const ggml_tensor* RootOf(const ggml_tensor* tensor) {
  return tensor->view_src == nullptr ? tensor : tensor->view_src;
}

bool IsViewOp(const ggml_tensor* tensor) {
  return tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_RESHAPE ||
         tensor->op == GGML_OP_PERMUTE || tensor->op == GGML_OP_TRANSPOSE;
}

// Weights are the leaves that have a buffer before the graph is allocated.
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

Result<CacheAttention> ReadAttention(ggml_tensor* node, const CacheNodes& nodes) {
  const auto [layer, kind] = nodes.PlaceOf(node->src[1]);
  const auto [value_layer, value_kind] = nodes.PlaceOf(node->src[2]);
  std::array<float, 3> params = {};
  std::memcpy(params.data(), node->op_params, sizeof(params));
  CacheAttention call = {.layer = layer,
                         .node = node,
                         .q = node->src[0],
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

// Makes `node` a view of `of`, which has the same number of elements, so that the nodes that read
// `node` need no change.
void BecomeViewOf(ggml_tensor* node, ggml_tensor* of) {
  if ((node->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) ggml_set_output(of);
  node->op = GGML_OP_VIEW;
  std::memset(node->op_params, 0, sizeof(node->op_params));
  std::memset(node->src, 0, sizeof(node->src));
  node->src[0] = of;
  node->view_src = of->view_src == nullptr ? of : of->view_src;
  node->view_offs = of->view_src == nullptr ? 0 : of->view_offs;
}

// A product of a weight with the tokens of several sequences in planes is made one of a single
// plane, and with one_token_at_a_time one of a plane for each token: ggml multiplies plane by
// plane, and a plane of one column takes the kernels of a single token. Products of F32 take other
// kernels if their input has gaps, which are closed, and for several planes of one column, as those
// of a token with a weight for each head are: these have a plane for each token in every step.
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
  // A weight for each head: [K, T, heads] becomes [K, 1, heads, T], and the product goes back.
  if (!splits || weight->ne[2] != x->ne[2] || x->ne[3] != 1 || x->ne[1] == 1) return;
  ggml_tensor* planes =
      ggml_view_4d(ctx, x, x->ne[0], 1, x->ne[2], x->ne[1], x->nb[1], x->nb[2], x->nb[1], 0);
  ggml_tensor* product = ggml_reshape_3d(ctx, ggml_mul_mat(ctx, weight, planes), node->ne[0],
                                         node->ne[2], node->ne[1]);
  BecomeViewOf(node, ggml_cont(ctx, ggml_permute(ctx, product, 0, 2, 1, 3)));
}

// Multiplies a product, with a weight or with chosen experts, by the scale of the weight.
void ScaleProduct(ggml_tensor* node, ggml_tensor* chosen, ggml_tensor* scale, ggml_context* ctx) {
  ggml_tensor* const product = ggml_dup_tensor(ctx, node);
  product->op = node->op;
  std::memcpy(product->op_params, node->op_params, sizeof(node->op_params));
  std::memcpy(product->src, node->src, sizeof(node->src));
  product->view_src = node->view_src;
  product->view_offs = node->view_offs;
  if (chosen != nullptr) {
    const int64_t num_experts = ggml_nelements(scale);
    scale = ggml_reshape_3d(ctx, scale, 1, num_experts, 1);
    scale = ggml_repeat_4d(ctx, scale, 1, num_experts, chosen->ne[1], 1);
    scale = ggml_get_rows(ctx, scale, chosen);  // [1, experts of a token, T]
  }
  BecomeViewOf(node, ggml_mul(ctx, product, scale));
}

// The nodes that compute something from a tensor.
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

}  // namespace

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
  return nodes;
}

Status RewriteGraph(llm_graph_result* built, const CacheNodes& nodes, ggml_context* ctx,
                    const RewriteOptions& options, const BuildAttention& attend,
                    ggml_cgraph* graph) {
  ggml_cgraph* const source = built->get_gf();
  std::unordered_set<const ggml_tensor*> left_out, kept;
  if (options.last != nullptr) left_out = DescendantsOf(options.last, source);
  if (options.first != nullptr) kept = DescendantsOf(options.first, source);
  size_t next_attention = 0;
  for (int i = 0; i < ggml_graph_n_nodes(source); ++i) {
    ggml_tensor* node = ggml_graph_node(source, i);
    if (left_out.contains(node) || (options.first != nullptr && !kept.contains(node))) continue;
    // A step without outputs ends in nodes that compute nothing.
    if (ggml_is_empty(node)) continue;
    const bool is_of_cache = nodes.PlaceOf(node).first >= 0;
    if (is_of_cache && (node->op == GGML_OP_SET_ROWS || IsViewOp(node))) continue;
    if (next_attention < nodes.attentions.size() && node == nodes.attentions[next_attention].node) {
      ggml_tensor* attended = attend(next_attention, nodes.attentions[next_attention]);
      BecomeViewOf(node, attended);
      ++next_attention;
    } else if (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID) {
      ggml_tensor* const weight = node->src[0];
      ggml_tensor* const chosen = node->op == GGML_OP_MUL_MAT_ID ? node->src[2] : nullptr;
      if (chosen == nullptr) RewriteProduct(node, ctx, options.one_token_at_a_time);
      if (options.scales != nullptr && options.scales->contains(weight)) {
        ScaleProduct(node, chosen, options.scales->at(weight), ctx);
      }
    }
    ggml_build_forward_expand(graph, node);
  }
  return CheckRewritten(graph, nodes);
}

}  // namespace ebb
