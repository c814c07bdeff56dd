#include "src/model/loaded/decoder_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "src/model/library/assertion_scope.h"
#include "src/model/library/library_impl.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {
namespace {

// Builds attention over the rows of `layer`; returns [value_dim * query heads, T]. Heads are padded
// with zeros to the width of the widest head, which changes no product.
ggml_tensor* Attend(const Hyperparameters& hparams, ggml_context* ctx, ggml_cgraph* graph,
                    int layer, const CacheAttention& call, bool keys_before_rope,
                    AttentionBuilder& attention) {
  const int64_t num_tokens = call.q->ne[1];
  const int head_dim = hparams.head_dim;
  const auto pad = [&](ggml_tensor* heads) {
    const int missing = head_dim - static_cast<int>(heads->ne[0]);
    return missing == 0 ? heads : ggml_pad(ctx, heads, missing, 0, 0, 0);
  };
  // Returns a view [dim, kv heads, T] of rows whose heads are `head_floats` apart.
  const auto kv_heads = [&](ggml_tensor* rows, int dim, int head_floats) {
    return pad(ggml_view_3d(ctx, rows, dim, call.num_kv_heads, num_tokens,
                            head_floats * sizeof(float), rows->nb[1], 0));
  };
  ggml_tensor* q = ggml_permute(ctx, call.q, 0, 2, 1, 3);
  const bool rescales = call.scale != hparams.attention_scale;
  if (rescales || q->nb[1] != call.key_dim * sizeof(float)) q = ggml_cont(ctx, q);
  if (rescales) q = ggml_scale(ctx, q, call.scale / hparams.attention_scale);
  ggml_tensor* const rope = keys_before_rope && call.k != nullptr ? RopeOf(call.k) : nullptr;
  ggml_tensor *k = nullptr, *v = nullptr;
  if (call.k != nullptr) {
    k = kv_heads(call.k, call.key_dim, call.key_dim);
    // In latent attention, values are the first elements of keys.
    v = call.value_in_key ? kv_heads(call.k, call.value_dim, call.key_dim)
                          : kv_heads(call.v, call.value_dim, call.value_dim);
  }
  ggml_tensor* out =
      attention.Attend(ctx, graph,
                       {.layer = layer,
                        .q = pad(q),
                        .k = k,
                        .v = v,
                        .num_kv_heads = call.num_kv_heads,
                        .k_before_rope = rope == nullptr ? nullptr : pad(rope->src[0]),
                        .sinks = call.sinks});
  if (call.value_dim == head_dim) return out;
  const size_t out_bytes = head_dim * sizeof(float);
  return ggml_cont(ctx, ggml_view_3d(ctx, out, call.value_dim, call.num_q_heads, num_tokens,
                                     out_bytes, out_bytes * call.num_q_heads, 0));
}

// GraphBuilder builds the graph of a step.
class GraphBuilder {
 public:
  GraphBuilder(const LoadedModel& model, ggml_context* ctx, const DecoderGraphOptions& options,
               AttentionBuilder& attention)
      : model_(model),
        impl_(model.library->impl()),
        ctx_(ctx),
        options_(options),
        attention_(attention) {
    const int last = impl_.hparams.num_layers - 1;
    // Builders drop the tokens without outputs inside the last block. If a policy reads that
    // block's output, all tokens are kept and the outputs are selected at the end.
    const bool reads_last =
        std::ranges::find(options.hidden_layers, last) != options.hidden_layers.end();
    selects_late_ = options.num_outputs < options.num_tokens &&
                    (reads_last || (options.logits && !impl_.selects_outputs));
  }

  Status Build() EBB_REQUIRES(impl_.mutex) {
    const int num_sequences =
        impl_.recurrent != nullptr ? options_.num_sequences : options_.num_tokens;
    LibraryModel::Impl::Built built =
        impl_.Build(num_sequences, options_.num_tokens / num_sequences,
                    selects_late_ ? options_.num_tokens : options_.num_outputs,
                    {.keeps_states = options_.keeps_states,
                     .has_head_rows = WantsHeadRows(),
                     .injects = options_.injects});
    library_ = built.result.get();
    ggml_cgraph* const graph = library_->get_gf();
    if (options_.eviction_logits && model_.layers.front().alpha != nullptr) {
      for (int i = 0; i < impl_.hparams.num_layers; ++i) {
        adapter_inputs_.push_back(impl_.InputOf(i, graph));
      }
    }
    std::vector<RowLookup> lookups;
    if (options_.takes_embeddings) lookups = TakeLookups(graph, impl_.weights);
    if (!model_.library_copies.empty()) {
      EBB_RETURN_IF_ERROR(ReadCopies(graph, impl_.weights, model_.library_copies));
    }
    EBB_ASSIGN_OR_RETURN(const CacheNodes nodes, impl_.FindNodes(library_));
    result.graph = ggml_new_graph_custom(
        ctx_, DecoderGraphMaxNodes(model_, options_.attention_nodes_per_layer), false);
    EBB_RETURN_IF_ERROR(KeepHidden(built));
    const WeightScales scales = impl_.ScalesOf(model_.library_copies);
    EBB_RETURN_IF_ERROR(RewriteGraph(library_, nodes, ctx_,
                                     {.one_token_at_a_time = options_.one_token_at_a_time,
                                      .last = LastOf(built),
                                      .scales = &scales,
                                      .joined = &impl_.joined},
                                     ReplacementsOf(nodes), result.graph));
    for (const CacheAttention& rows : nodes.stores) StoreRows(rows);
    ggml_tensor* const late_rows = options_.num_outputs > 0 ? KeepOutputs() : nullptr;
    result.other_context = library_->get_ctx();
    auto inputs =
        std::make_unique<LibraryInputs>(std::move(built.result), std::move(built.batch), late_rows);
    inputs->AddStates(std::move(built.state_context), std::move(built.states),
                      {result.other_context, ctx_});
    if (options_.takes_embeddings) inputs->StageOnHost(std::move(lookups));
    result.inputs = std::move(inputs);
    return OkStatus();
  }

  DecoderGraph result;

 private:
  [[nodiscard]] bool WantsHeadRows() const {
    const std::vector<int>& layers = options_.hidden_layers;
    return std::ranges::find(layers, kHeadRows) != layers.end();
  }

  Status KeepHidden(const LibraryModel::Impl::Built& built) {
    for (const int layer : options_.hidden_layers) {
      ggml_tensor* const hidden = layer == kHeadRows ? library_->t_h_nextn : HiddenOf(built, layer);
      if (hidden == nullptr) {
        return Unsupported(fmt::format("the output of block {} has no name", layer));
      }
      ggml_set_output(hidden);
      result.hidden.push_back(hidden);
    }
    return OkStatus();
  }

  // Returns the tensor after which the step needs no node; null: it needs all.
  [[nodiscard]] const ggml_tensor* LastOf(const LibraryModel::Impl::Built& built) const {
    if (options_.num_outputs == 0 && selects_late_) {
      return HiddenOf(built, impl_.hparams.num_layers - 1);
    }
    return options_.logits || options_.injects ? nullptr : Outputs();
  }

  // Returns the input of the logits; of a head, the hidden rows that its next step reads.
  [[nodiscard]] ggml_tensor* Outputs() const {
    const bool is_row = IsHead(impl_.hparams) && !options_.injects;
    return is_row ? library_->t_h_nextn : library_->t_embd;
  }

  // Stores rows that no attention of the graph reads.
  void StoreRows(const CacheAttention& rows) {
    const int kv_heads = impl_.hparams.kv_heads[rows.layer];
    const auto heads = [&](ggml_tensor* all) {
      const int64_t dim = all->ne[0] / kv_heads;
      ggml_tensor* const view =
          ggml_view_3d(ctx_, all, dim, kv_heads, all->ne[1], dim * sizeof(float), all->nb[1], 0);
      const auto missing = static_cast<int>(impl_.hparams.head_dim - dim);
      return missing == 0 ? view : ggml_pad(ctx_, view, missing, 0, 0, 0);
    };
    attention_.Store(
        ctx_, result.graph,
        {.layer = rows.layer, .k = heads(rows.k), .v = heads(rows.v), .num_kv_heads = kv_heads});
  }

  // Returns the output of a block; null: it has no name.
  [[nodiscard]] ggml_tensor* HiddenOf(const LibraryModel::Impl::Built& built, int layer) const {
    const auto found = built.block_outputs.find(layer);
    return found != built.block_outputs.end() ? found->second : library_->t_h_nextn;
  }

  // Returns the input that selects the outputs at the end; null: libllama's input selects them
  // earlier.
  ggml_tensor* KeepOutputs() {
    ggml_tensor* late_rows = nullptr;
    ggml_tensor*& output = options_.logits ? result.logits : result.outputs;
    output = options_.logits ? library_->t_logits : Outputs();
    if (selects_late_) {
      late_rows = ggml_new_tensor_1d(ctx_, GGML_TYPE_I32, options_.num_outputs);
      ggml_set_input(late_rows);
      output = ggml_get_rows(ctx_, output, late_rows);
      ggml_build_forward_expand(result.graph, output);
    }
    ggml_set_output(output);
    return late_rows;
  }

  // Returns the replacements of nodes for this step. REQUIRES: `nodes` outlives them.
  Replacements ReplacementsOf(const CacheNodes& nodes) {
    Replacements replacements;
    for (size_t i = 0; i < nodes.attentions.size(); ++i) {
      const CacheAttention& call = nodes.attentions[i];
      const int layer = impl_.hparams.layers_read[i];
      replacements[call.node] = [this, &call, layer](ggml_tensor*) {
        if (!adapter_inputs_.empty()) ReadAdapter(layer);
        return Attend(impl_.hparams, ctx_, result.graph, layer, call, options_.keys_before_rope,
                      attention_);
      };
      if (model_.layers[layer].kept_channels == nullptr) continue;
      replacements[call.turned_q] = [this, &call, layer](ggml_tensor* rope) {
        return TurnQueries(layer, call, rope);
      };
    }
    return replacements;
  }

  // Returns, for EvictionLayout::kQueryLastChannel, the result of `rope` without the channels that
  // carry eviction logits. The mask is applied after RoPE, since RoPE rotates pairs of channels and
  // would bring part of the other channel into a masked one.
  ggml_tensor* TurnQueries(int layer, const CacheAttention& call, ggml_tensor* rope) {
    ggml_tensor* const kept = model_.layers[layer].kept_channels;
    ggml_tensor* const q = rope->src[0];  // [head_dim, query heads, T]
    if (options_.eviction_logits && call.k != nullptr) {
      const int heads_per_group = call.num_q_heads / call.num_kv_heads;
      KeepChannels(ggml_cont(
          ctx_, ggml_view_3d(ctx_, q, 1, call.num_kv_heads, q->ne[2], heads_per_group * q->nb[1],
                             q->nb[2], (q->ne[0] - 1) * sizeof(float))));
    }
    ggml_tensor* const turned = CopyNode(rope, ctx_);
    turned->src[0] = ggml_mul(ctx_, q, kept);
    return ggml_mul(ctx_, turned, kept);
  }

  // Computes the eviction channels of a layer for EvictionLayout::kAdapter.
  void ReadAdapter(int layer) {
    const LayerWeights& weights = model_.layers[layer];
    ggml_tensor* const norm =
        ggml_rms_norm(ctx_, adapter_inputs_[layer], impl_.model->hparams.f_norm_rms_eps);
    ggml_tensor* const product =
        ggml_mul_mat(ctx_, weights.alpha, ggml_mul(ctx_, norm, weights.alpha_norm));
    RewriteProduct(product, ctx_, options_.one_token_at_a_time);
    KeepChannels(product);
  }

  void KeepChannels(ggml_tensor* channels) {
    ggml_set_output(channels);
    ggml_build_forward_expand(result.graph, channels);
    result.eviction_channels.push_back(channels);
  }

  const LoadedModel& model_;
  const LibraryModel::Impl& impl_;
  ggml_context* const ctx_;
  const DecoderGraphOptions& options_;
  AttentionBuilder& attention_;
  bool selects_late_ = false;
  llm_graph_result* library_ = nullptr;
  std::vector<ggml_tensor*> adapter_inputs_;  // by layer; empty: no adapter is asked
};

}  // namespace

int DecoderGraphMaxNodes(const LoadedModel& model, int attention_nodes_per_layer) {
  const LibraryModel::Impl& impl = model.library->impl();
  const auto attentions = static_cast<int>(impl.hparams.layers_read.size());
  return 3 * impl.num_nodes + attentions * (attention_nodes_per_layer + 8) + 256;
}

Result<DecoderGraph> BuildDecoderGraph(const LoadedModel& model, ggml_context* ctx,
                                       const DecoderGraphOptions& options,
                                       AttentionBuilder& attention) {
  const LibraryModel::Impl& impl = model.library->impl();
  GraphBuilder builder(model, ctx, options, attention);
  const MutexLock lock(impl.mutex);
  EBB_RETURN_IF_ERROR(RunChecked([&] {
    impl.mutex.AssertHeld();
    return builder.Build();
  }));
  return std::move(builder.result);
}

int OutputFloats(const LoadedModel& model) { return model.library->impl().output_floats; }

// Lets `graph`, whose tensors are set, own what libllama built.
static void KeepRows(std::unique_ptr<llm_graph_result> built, RowGraph* graph) {
  ggml_set_output(graph->output);
  graph->other_context = built->get_ctx();
  graph->owner = std::shared_ptr<llm_graph_result>(std::move(built));
}

Result<RowGraph> BuildLogitsGraph(const LoadedModel& model, ggml_context* ctx, int num_tokens,
                                  bool one_token_at_a_time) {
  const LibraryModel::Impl& impl = model.library->impl();
  RowGraph result;
  const MutexLock lock(impl.mutex);
  EBB_RETURN_IF_ERROR(RunChecked([&]() -> Status {
    impl.mutex.AssertHeld();
    LibraryModel::Impl::Built built = impl.Build(num_tokens, 1, num_tokens, {});
    llm_graph_result* const library = built.result.get();
    ggml_tensor* const outputs = library->t_embd;
    EBB_ASSIGN_OR_RETURN(const CacheNodes nodes, impl.FindNodes(library));
    outputs->op = GGML_OP_NONE;
    std::memset(outputs->src, 0, sizeof(outputs->src));
    ggml_set_input(outputs);
    result.graph = ggml_new_graph_custom(ctx, kRowGraphMaxNodes, false);
    EBB_RETURN_IF_ERROR(RewriteGraph(
        library, nodes, ctx,
        {.one_token_at_a_time = one_token_at_a_time, .scales = &impl.scales, .first = outputs}, {},
        result.graph));
    result.input = outputs;
    result.output = library->t_logits;
    KeepRows(std::move(built.result), &result);
    return OkStatus();
  }));
  return result;
}

Result<RowGraph> BuildFeatureGraph(const LoadedModel& head, ggml_context* ctx, int num_tokens) {
  const LibraryModel::Impl& impl = head.library->impl();
  RowGraph result;
  const MutexLock lock(impl.mutex);
  EBB_RETURN_IF_ERROR(RunChecked([&]() -> Status {
    impl.mutex.AssertHeld();
    LibraryModel::Impl::Built built = impl.Build(1, num_tokens, num_tokens, {.encodes = true});
    llm_graph_result* const library = built.result.get();
    result.input = LibraryModel::Impl::HiddenInputOf(*library);
    result.output = library->t_h_nextn;
    result.graph = ggml_new_graph_custom(ctx, kRowGraphMaxNodes, false);
    EBB_RETURN_IF_ERROR(RewriteGraph(library, {}, ctx, {.scales = &impl.scales}, {}, result.graph));
    KeepRows(std::move(built.result), &result);
    return OkStatus();
  }));
  return result;
}

}  // namespace ebb
