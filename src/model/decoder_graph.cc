#include "src/model/decoder_graph.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "src/model/family.h"
#include "src/model/library/library_model.h"
#include "src/model/loaded_model.h"
#include "src/model/product_layout.h"

namespace ebb {
namespace {

constexpr int kMaxOtherNodesPerLayer = 60;
constexpr int kMaxNodesOutsideLayers = 32;

// Columns are kept apart where a product of several gives them other bits than a product of each
// does. ggml multiplies plane by plane: one of a single column takes the kernels of a single
// column.
ggml_tensor* Product(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x,
                     bool one_token_at_a_time) {
  if (!one_token_at_a_time || HasSameBitsInBatches(*weight)) return ggml_mul_mat(ctx, weight, x);
  ggml_tensor* planes = ggml_reshape_3d(ctx, x, x->ne[0], 1, x->ne[1]);
  ggml_tensor* y = ggml_mul_mat(ctx, weight, planes);
  return ggml_reshape_2d(ctx, y, y->ne[0], y->ne[2]);
}

class DecoderGraphBuilder {
 public:
  DecoderGraphBuilder(const LoadedModel& model, ggml_context* ctx,
                      const DecoderGraphOptions& options, AttentionBuilder& attention)
      : model_(model),
        h_(model.hparams),
        ctx_(ctx),
        options_(options),
        attention_(attention),
        num_tokens_(options.num_tokens) {}

  DecoderGraph Build();

 private:
  struct Heads {
    ggml_tensor *q, *k, *v;  // [head_dim, heads, T]
    ggml_tensor* k_before_rope;
  };

  ggml_tensor* Input(int64_t size, const char* name);
  ggml_tensor* Norm(ggml_tensor* x, ggml_tensor* weight);
  ggml_tensor* Product(ggml_tensor* weight, ggml_tensor* x) {
    return ebb::Product(ctx_, weight, x, options_.one_token_at_a_time);
  }
  [[nodiscard]] const LayerWeights& Weights(int layer) const { return model_.layers[layer]; }
  ggml_tensor* Rope(int layer, ggml_tensor* heads);
  // Views of some heads of x: [head_dim * heads, T], or [head_dim, heads, T].
  ggml_tensor* SplitHeads(ggml_tensor* x, int first_head, int num_heads);
  ggml_tensor* SelectHeads(ggml_tensor* x, int first_head, int num_heads);
  ggml_tensor* Project(ggml_tensor* weight, ggml_tensor* bias, int64_t bias_offset, ggml_tensor* x);
  Heads ProjectHeads(int layer_index, ggml_tensor* x);
  // RoPE; channels that carry eviction logits take no part, neither in it nor behind it.
  ggml_tensor* Turn(int layer, ggml_tensor* heads);
  ggml_tensor* WithoutLogits(int layer, ggml_tensor* heads);
  void KeepEvictionChannels(ggml_tensor* channels);
  // q: query heads before RoPE, others may follow.
  void KeepQueryChannels(int layer, ggml_tensor* q);
  // x: what comes into the layer.
  void KeepAdapterChannels(const LayerWeights& layer, ggml_tensor* x);
  ggml_tensor* NormHeads(const LayerWeights& layer, ggml_tensor* heads, int first_head);
  ggml_tensor* Attention(int layer_index, ggml_tensor* x);
  // The norm behind what is added to the hidden state, where the family has one.
  ggml_tensor* PostNorm(ggml_tensor* x, ggml_tensor* weight);
  ggml_tensor* FeedForward(const LayerWeights& layer, ggml_tensor* x);
  ggml_tensor* OutputRows(ggml_tensor* x);
  [[nodiscard]] bool KeepsHidden(int layer_index) const;
  void KeepHidden(int layer_index, ggml_tensor* x);

  const LoadedModel& model_;
  const Hyperparameters& h_;
  ggml_context* ctx_;
  const DecoderGraphOptions& options_;
  AttentionBuilder& attention_;
  const int64_t num_tokens_;
  DecoderGraph result_;
};

ggml_tensor* DecoderGraphBuilder::Input(int64_t size, const char* name) {
  ggml_tensor* input = ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, size);
  ggml_set_name(input, name);
  ggml_set_input(input);
  return input;
}

ggml_tensor* DecoderGraphBuilder::Norm(ggml_tensor* x, ggml_tensor* weight) {
  // ggml's CPU backend runs the two as one node.
  return ggml_mul(ctx_, ggml_rms_norm(ctx_, x, h_.norm_epsilon), weight);
}

ggml_tensor* DecoderGraphBuilder::Rope(int layer, ggml_tensor* heads) {
  const bool in_window = !h_.windows.empty() && h_.windows[layer] > 0;
  return ggml_rope_ext(ctx_, heads, result_.positions, Weights(layer).rope_factors, h_.rope_dims,
                       h_.rope_mode, h_.rope_original_context,
                       in_window ? h_.rope_base_in_windows : h_.rope_base,
                       in_window ? 1.0f : h_.rope_frequency_scale, h_.yarn_ext_factor,
                       h_.yarn_attn_factor, h_.yarn_beta_fast, h_.yarn_beta_slow);
}

ggml_tensor* DecoderGraphBuilder::SplitHeads(ggml_tensor* x, int first_head, int num_heads) {
  const size_t head_bytes = h_.head_dim * sizeof(float);
  return ggml_view_3d(ctx_, x, h_.head_dim, num_heads, num_tokens_, head_bytes, x->nb[1],
                      first_head * head_bytes);
}

ggml_tensor* DecoderGraphBuilder::SelectHeads(ggml_tensor* x, int first_head, int num_heads) {
  return ggml_view_3d(ctx_, x, h_.head_dim, num_heads, num_tokens_, x->nb[1], x->nb[2],
                      first_head * x->nb[1]);
}

ggml_tensor* DecoderGraphBuilder::Project(ggml_tensor* weight, ggml_tensor* bias,
                                          int64_t bias_offset, ggml_tensor* x) {
  ggml_tensor* y = Product(weight, x);
  if (bias == nullptr) return y;
  return ggml_add(ctx_, y, ggml_view_1d(ctx_, bias, weight->ne[1], bias_offset * sizeof(float)));
}

ggml_tensor* DecoderGraphBuilder::NormHeads(const LayerWeights& layer, ggml_tensor* heads,
                                            int first_head) {
  if (layer.qk_norm == nullptr) return heads;
  ggml_tensor* weight = ggml_view_2d(ctx_, layer.qk_norm, h_.head_dim, heads->ne[1],
                                     layer.qk_norm->nb[1], first_head * layer.qk_norm->nb[1]);
  return Norm(heads, weight);
}

ggml_tensor* DecoderGraphBuilder::WithoutLogits(int layer, ggml_tensor* heads) {
  ggml_tensor* const channels = Weights(layer).kept_channels;
  if (channels == nullptr) return heads;
  ggml_tensor* kept = ggml_view_2d(ctx_, channels, h_.head_dim, heads->ne[1], channels->nb[1], 0);
  return ggml_mul(ctx_, heads, kept);
}

// RoPE brings some of its partner back into the channel.
ggml_tensor* DecoderGraphBuilder::Turn(int layer, ggml_tensor* heads) {
  return WithoutLogits(layer, Rope(layer, WithoutLogits(layer, heads)));
}

void DecoderGraphBuilder::KeepEvictionChannels(ggml_tensor* channels) {
  ggml_set_output(channels);
  ggml_build_forward_expand(result_.graph, channels);
  result_.eviction_channels.push_back(channels);
}

void DecoderGraphBuilder::KeepQueryChannels(int layer, ggml_tensor* q) {
  if (!options_.eviction_logits || Weights(layer).kept_channels == nullptr) return;
  const int kv_heads = h_.kv_heads[layer];
  const int heads_per_group = h_.num_q_heads / kv_heads;
  KeepEvictionChannels(
      ggml_cont(ctx_, ggml_view_3d(ctx_, q, 1, kv_heads, num_tokens_, heads_per_group * q->nb[1],
                                   q->nb[2], (h_.head_dim - 1) * sizeof(float))));
}

void DecoderGraphBuilder::KeepAdapterChannels(const LayerWeights& layer, ggml_tensor* x) {
  if (!options_.eviction_logits || layer.alpha == nullptr) return;
  KeepEvictionChannels(Product(layer.alpha, Norm(x, layer.alpha_norm)));
}

DecoderGraphBuilder::Heads DecoderGraphBuilder::ProjectHeads(int layer_index, ggml_tensor* x) {
  const LayerWeights& layer = Weights(layer_index);
  const int num_q = h_.num_q_heads;
  const int num_kv = h_.kv_heads[layer_index];
  const int64_t k_offset = int64_t{h_.head_dim} * num_q;
  const int64_t v_offset = int64_t{h_.head_dim} * (num_q + num_kv);
  Heads heads = {};
  ggml_tensor* joined = nullptr;  // q and k, and v if wqkv
  if (layer.wqkv != nullptr) {
    joined = Project(layer.wqkv, layer.bqkv, 0, x);
    heads.v = SplitHeads(joined, num_q + num_kv, num_kv);
  } else {
    heads.v = SplitHeads(Project(layer.wv, layer.bqkv, v_offset, x), 0, num_kv);
    if (layer.wqk != nullptr) joined = Project(layer.wqk, layer.bqkv, 0, x);
  }
  if (joined == nullptr) {
    heads.q = SplitHeads(Project(layer.wq, layer.bqkv, 0, x), 0, num_q);
    heads.k = SplitHeads(Project(layer.wk, layer.bqkv, k_offset, x), 0, num_kv);
    heads.k_before_rope = NormHeads(layer, heads.k, num_q);
    heads.q = NormHeads(layer, heads.q, 0);
    KeepQueryChannels(layer_index, heads.q);
    heads.q = Turn(layer_index, heads.q);
    heads.k = Rope(layer_index, heads.k_before_rope);
    return heads;
  }
  ggml_tensor* qk = NormHeads(layer, SplitHeads(joined, 0, num_q + num_kv), 0);
  KeepQueryChannels(layer_index, qk);
  heads.k_before_rope = SelectHeads(qk, num_q, num_kv);
  ggml_tensor* turned = Turn(layer_index, qk);
  heads.q = SelectHeads(turned, 0, num_q);
  heads.k = SelectHeads(turned, num_q, num_kv);
  return heads;
}

ggml_tensor* DecoderGraphBuilder::Attention(int layer_index, ggml_tensor* x) {
  const LayerWeights& layer = Weights(layer_index);
  KeepAdapterChannels(layer, x);
  const Heads heads = ProjectHeads(layer_index, Norm(x, layer.attn_norm));
  return attention_.Attend(
      ctx_, result_.graph,
      {.layer = layer_index,
       .q = heads.q,
       .k = heads.k,
       .v = heads.v,
       .k_before_rope = options_.keys_before_rope ? heads.k_before_rope : nullptr});
}

ggml_tensor* DecoderGraphBuilder::FeedForward(const LayerWeights& layer, ggml_tensor* x) {
  x = Norm(x, layer.ffn_norm);
  const bool gelu = model_.family->gate == Gate::kGelu;
  ggml_tensor* gated = nullptr;
  if (layer.ffn_gate_up != nullptr) {
    ggml_tensor* both = Product(layer.ffn_gate_up, x);
    gated = gelu ? ggml_geglu(ctx_, both) : ggml_swiglu(ctx_, both);
  } else {
    ggml_tensor* gate = Product(layer.ffn_gate, x);
    ggml_tensor* up = Product(layer.ffn_up, x);
    gated = gelu ? ggml_geglu_split(ctx_, gate, up) : ggml_swiglu_split(ctx_, gate, up);
  }
  return PostNorm(Product(layer.ffn_down, gated), layer.post_ffn_norm);
}

ggml_tensor* DecoderGraphBuilder::PostNorm(ggml_tensor* x, ggml_tensor* weight) {
  return weight == nullptr ? x : Norm(x, weight);
}

void DecoderGraphBuilder::KeepHidden(int layer_index, ggml_tensor* x) {
  if (!KeepsHidden(layer_index)) return;
  ggml_set_output(x);
  ggml_build_forward_expand(result_.graph, x);
  for (size_t i = 0; i < options_.hidden_layers.size(); ++i) {
    if (options_.hidden_layers[i] == layer_index) result_.hidden[i] = x;
  }
}

bool DecoderGraphBuilder::KeepsHidden(int layer_index) const {
  return std::find(options_.hidden_layers.begin(), options_.hidden_layers.end(), layer_index) !=
         options_.hidden_layers.end();
}

ggml_tensor* DecoderGraphBuilder::OutputRows(ggml_tensor* x) {
  return result_.output_rows == nullptr ? x : ggml_get_rows(ctx_, x, result_.output_rows);
}

DecoderGraph DecoderGraphBuilder::Build() {
  result_.graph = ggml_new_graph_custom(
      ctx_, DecoderGraphMaxNodes(model_, options_.attention_nodes_per_layer), false);
  if (!options_.takes_embeddings) result_.tokens = Input(num_tokens_, "tokens");
  result_.positions = Input(num_tokens_, "positions");
  if (options_.num_outputs > 0 && options_.num_outputs < options_.num_tokens) {
    result_.output_rows = Input(options_.num_outputs, "output_rows");
  }
  result_.hidden.resize(options_.hidden_layers.size());

  const int last = h_.num_layers - 1;
  ggml_tensor* x = nullptr;
  if (options_.takes_embeddings) {
    x = ggml_new_tensor_2d(ctx_, GGML_TYPE_F32, h_.embed_dim, num_tokens_);
    ggml_set_name(x, "embeddings");
    ggml_set_input(x);
    result_.embeddings = x;
  } else {
    x = ggml_get_rows(ctx_, model_.token_embedding, result_.tokens);
  }
  if (model_.family->scales_embeddings) {
    x = ggml_scale(ctx_, x, std::sqrt(static_cast<float>(h_.embed_dim)));
  }
  for (int i = 0; i <= last; ++i) {
    const LayerWeights& layer = model_.layers[i];
    ggml_tensor* attended = Attention(i, x);
    const auto rest = [&](ggml_tensor* rows, ggml_tensor* attended_rows) {
      ggml_tensor* projected = Project(layer.wo, layer.bo, 0, attended_rows);
      rows = ggml_add(ctx_, PostNorm(projected, layer.post_attn_norm), rows);
      return ggml_add(ctx_, FeedForward(layer, rows), rows);
    };
    // Past the last attention only the outputs matter. Who watches that layer pays for the other
    // tokens apart, so that watching does not change how logits are rounded.
    const bool leaves_tokens_out = i == last && options_.num_outputs < options_.num_tokens;
    if (leaves_tokens_out && KeepsHidden(i)) KeepHidden(i, rest(x, attended));
    if (i == last && options_.num_outputs == 0) {
      ggml_build_forward_expand(result_.graph, attended);
      return std::move(result_);
    }
    x = i == last ? rest(OutputRows(x), OutputRows(attended)) : rest(x, attended);
    if (!leaves_tokens_out) KeepHidden(i, x);
  }
  x = Norm(x, model_.output_norm);
  ggml_tensor*& result = options_.logits ? result_.logits : result_.outputs;
  result = options_.logits ? Product(model_.output, x) : x;
  ggml_set_output(result);
  ggml_build_forward_expand(result_.graph, result);
  return std::move(result_);
}

}  // namespace

void SetIntegers(ggml_tensor* tensor, std::span<const int32_t> values) {
  if (tensor == nullptr) return;
  std::memcpy(tensor->data, values.data(), values.size_bytes());
  std::memset(static_cast<char*>(tensor->data) + values.size_bytes(), 0,
              ggml_nbytes(tensor) - values.size_bytes());
}

void DecoderGraph::SetInputs(std::span<const Token> token_values,
                             std::span<const Position> position_values,
                             std::span<const int32_t> output_row_values) {
  if (inputs != nullptr) return inputs->Set(token_values, position_values, output_row_values);
  SetIntegers(tokens, token_values);
  SetIntegers(positions, position_values);
  SetIntegers(output_rows, output_row_values);
}

Result<DecoderGraph> BuildDecoderGraph(const LoadedModel& model, ggml_context* ctx,
                                       const DecoderGraphOptions& options,
                                       AttentionBuilder& attention) {
  if (model.library != nullptr) {
    return model.library->BuildGraph(ctx, options, attention, model.library_copies);
  }
  return DecoderGraphBuilder(model, ctx, options, attention).Build();
}

int DecoderGraphMaxNodes(const LoadedModel& model, int attention_nodes_per_layer) {
  if (model.library != nullptr) return model.library->MaxNodes(attention_nodes_per_layer);
  return model.hparams.num_layers * (kMaxOtherNodesPerLayer + attention_nodes_per_layer) +
         kMaxNodesOutsideLayers;
}

int OutputFloats(const LoadedModel& model) {
  return model.library != nullptr ? model.library->OutputFloats()
                                  : static_cast<int>(model.output->ne[0]);
}

Result<LogitsGraph> BuildLogitsGraph(const LoadedModel& model, ggml_context* ctx, int num_tokens,
                                     bool one_token_at_a_time) {
  if (model.library != nullptr) {
    return model.library->BuildLogits(ctx, num_tokens, one_token_at_a_time);
  }
  LogitsGraph result;
  result.graph = ggml_new_graph_custom(ctx, kLogitsGraphMaxNodes, false);
  result.outputs = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, model.output->ne[0], num_tokens);
  ggml_set_input(result.outputs);
  result.logits = Product(ctx, model.output, result.outputs, one_token_at_a_time);
  ggml_set_output(result.logits);
  ggml_build_forward_expand(result.graph, result.logits);
  return result;
}

}  // namespace ebb
