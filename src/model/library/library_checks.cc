#include "src/model/library/library_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "src/base/head_sizes.h"
#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

// kRopeSections is the index of the sizes of sections among the parameters of GGML_OP_ROPE.
constexpr int kRopeSections = 11;

}  // namespace

Status CheckMemory(const llama_memory_i* memory) {
  if (memory == nullptr) return Unsupported("it does not generate text token by token");
  // The type must match exactly, because derived classes keep more than rows and states.
  const std::type_info& kind = typeid(*memory);
  if (kind == typeid(llama_kv_cache) || kind == typeid(llama_kv_cache_iswa) ||
      kind == typeid(llama_memory_hybrid) || kind == typeid(llama_memory_hybrid_iswa)) {
    return OkStatus();
  }
  if (kind == typeid(llama_memory_recurrent)) {
    return Unsupported("it has recurrent state and no KV cache");
  }
  return Unsupported("attention that selects rows by an indexer is not supported");
}

Status Refuse(const CacheAttention& call, std::string_view what) {
  return Unsupported(fmt::format("{} (layer {}) is not supported yet", what, call.layer));
}

Status CheckAttention(const CacheAttention& call, const CacheAttention& first) {
  if (call.k == nullptr ? call.v != nullptr : call.v == nullptr && !call.value_in_key) {
    return Refuse(call, "keys without values or values without keys");
  }
  if (call.sinks != nullptr &&
      (call.sinks->type != GGML_TYPE_F32 || ggml_nelements(call.sinks) != call.num_q_heads)) {
    return Refuse(call, "attention with sinks that are not one number in F32 for each head");
  }
  if (!std::isfinite(call.soft_cap) || call.soft_cap < 0) {
    return Corrupt(fmt::format("attention has a soft cap of {}", call.soft_cap));
  }
  if (call.soft_cap != first.soft_cap) {
    return Refuse(call, "a soft cap of attention that differs between layers");
  }
  if (call.alibi_bias != 0) return Refuse(call, "ALiBi");
  if (std::max(call.key_dim, call.value_dim) > kMaxHeadDim) {
    return Refuse(call, fmt::format("heads of {} elements, more than {},",
                                    std::max(call.key_dim, call.value_dim), kMaxHeadDim));
  }
  if (call.num_q_heads != first.num_q_heads) {
    return Refuse(call, "a number of query heads that differs between layers");
  }
  if (call.num_kv_heads == 0 || call.num_q_heads % call.num_kv_heads != 0) {
    return Refuse(call, "query heads that cannot share the key-value heads evenly");
  }
  if ((call.k != nullptr && call.k->type != GGML_TYPE_F32) ||
      (call.v != nullptr && call.v->type != GGML_TYPE_F32)) {
    return Refuse(call, "keys or values that are not computed in F32");
  }
  return OkStatus();
}

bool ReadsAlike(const CacheAttention& call, const CacheAttention& stored) {
  return call.key_dim == stored.key_dim && call.value_dim == stored.value_dim &&
         call.num_kv_heads == stored.num_kv_heads && call.in_window == stored.in_window &&
         call.value_in_key == stored.value_in_key;
}

Status CheckSoftCaps(const GgufFile& file, const std::string& architecture, bool caps_scores,
                     bool caps_logits) {
  const auto check = [&](std::string_view name, bool is_applied) -> Status {
    const std::string key = fmt::format("{}.{}", architecture, name);
    float cap = 0;
    EBB_RETURN_IF_ERROR(file.Read(key, GgufFile::Need::kOptional, &cap));
    if (cap == 0 || is_applied) return OkStatus();
    return Unsupported(
        fmt::format("{} is {}: libllama caps nothing in models of this family", key, cap));
  };
  EBB_RETURN_IF_ERROR(check("attn_logit_softcapping", caps_scores));
  return check("final_logit_softcapping", caps_logits);
}

Rope ReadRope(const ggml_tensor* node) {
  Rope rope;
  const int32_t* const ints = node->op_params;
  rope.dims = ints[1];
  rope.mode = ints[2];
  rope.original_context = ints[4];
  float floats[6];
  std::memcpy(floats, ints + 5, sizeof(floats));
  rope.base = floats[0];
  rope.scale = floats[1];
  rope.ext_factor = floats[2];
  rope.attn_factor = floats[3];
  rope.beta_fast = floats[4];
  rope.beta_slow = floats[5];
  rope.factors = node->src[2];
  return rope;
}

Status CheckWeightTypes(ggml_cgraph* graph, const WeightSet& weights) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    const bool multiplies = node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID;
    const bool adds = node->op == GGML_OP_ADD || node->op == GGML_OP_MUL;
    const ggml_tensor* weight = multiplies ? node->src[0] : node->src[1];
    if (!(multiplies || adds) || !weights.contains(weight)) continue;
    if (multiplies ? CanMultiply(weight->type) : weight->type == GGML_TYPE_F32) continue;
    const char* type = ggml_type_name(weight->type);
    return Unsupported(fmt::format("tensor {} is of type {}, {}", weight->name,
                                   type == nullptr ? "unknown" : type,
                                   multiplies ? "which no product takes" : "expected f32"));
  }
  return OkStatus();
}

Status CheckRopes(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_ROPE) continue;
    const auto [dims, mode] = std::pair(node->op_params[1], node->op_params[2]);
    if (dims <= 0 || dims % 2 != 0 || dims > node->ne[0]) {
      return Corrupt(fmt::format("RoPE turns {} elements of heads of {}", dims, node->ne[0]));
    }
    int64_t sum = 0;
    for (int section = 0; section < GGML_MROPE_SECTIONS; ++section) {
      const int size = node->op_params[kRopeSections + section];
      if (size < 0) return Corrupt(fmt::format("a section of RoPE has {} elements", size));
      sum += size;
    }
    const bool has_sections = (mode & GGML_ROPE_TYPE_MROPE) != 0;
    if (sum > node->ne[0] || (has_sections && sum == 0)) {
      return Corrupt(
          fmt::format("the sections of RoPE have {} elements of heads of {}", sum, node->ne[0]));
    }
  }
  return OkStatus();
}

}  // namespace ebb
