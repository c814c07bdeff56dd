#include "src/model/library/library_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "src/base/head_sizes.h"
#include "src/base/llama_runtime.h"
#include "src/model/library/assertion_scope.h"
#include "src/model/library/library_checks.h"
#include "src/model/library/library_file.h"
#include "src/model/library/library_impl.h"

namespace ebb {
namespace {

// kStateAlignment aligns the parts of recurrent states for ggml's kernels.
constexpr size_t kStateAlignment = 64;

}  // namespace

// Returns cells of libllama's cache for the tokens of a batch. There may be more tokens than cells;
// that does no harm, because graphs are only built and no row is written there.
static llama_kv_cache::slot_info_vec_t CellsFor(const llama_ubatch& batch) {
  llama_kv_cache::slot_info cells = {.s0 = 0, .s1 = 0, .strm = {0}, .idxs = {{}}};
  for (uint32_t i = 0; i < batch.n_tokens; ++i) cells.idxs[0].push_back(i % kLibraryCacheRows);
  return {cells};
}

llama_memory_context_ptr LibraryModel::Impl::MakeMemoryContext(const llama_ubatch& batch) const {
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid*>(memory.get())) {
    llama_kv_cache* rows = hybrid->get_mem_attn();
    rows->clear(false);
    auto context = std::make_unique<llama_memory_hybrid_context>(hybrid, CellsFor(batch),
                                                                 std::vector<llama_ubatch>{batch});
    // Applies the context, because its number of rows is not set before. The recurrent context is
    // left alone: see MakeStates().
    const_cast<llama_kv_cache_context*>(context->get_attn())->apply();
    return context;
  }
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid_iswa*>(memory.get())) {
    llama_kv_cache_iswa* rows = hybrid->get_mem_attn();
    rows->clear(false);
    auto context = std::make_unique<llama_memory_hybrid_iswa_context>(
        hybrid, CellsFor(batch), CellsFor(batch), std::vector<llama_ubatch>{batch});
    const_cast<llama_kv_cache_iswa_context*>(context->get_attn())->apply();
    return context;
  }
  return memory->init_full();
}

// Shows builders as many cells as there are sequences, each with the state of one sequence, and no
// state to copy from one cell to another.
void LibraryModel::Impl::MakeStates(int num_sequences, int num_slots, Built* built) const {
  if (recurrent == nullptr) return;
  recurrent->head = 0;
  recurrent->rs_z = -1;
  recurrent->n = recurrent->size = static_cast<uint32_t>(num_sequences);
  built->state_context.reset(
      ggml_init({.mem_size = (state_places.size() + 1) * ggml_tensor_overhead(),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  size_t offset = 0;
  for (const StatePlace& place : state_places) {
    ggml_tensor* tensor = ggml_new_tensor_2d(built->state_context.get(), place.type, place.floats,
                                             static_cast<int64_t>(num_sequences) * num_slots);
    ggml_set_name(tensor, place.name.c_str());
    tensor->buffer = state_buffer.get();
    tensor->data = ggml_backend_buffer_get_base(state_buffer.get());
    const size_t bytes = ggml_row_size(place.type, place.floats);
    built->states.push_back({.tensor = tensor, .offset = offset * num_slots, .bytes = bytes});
    offset += (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    *place.tensor = tensor;
  }
}

LibraryModel::Impl::Built LibraryModel::Impl::Build(int num_sequences, int tokens_of_each,
                                                    int num_outputs,
                                                    const BuildOptions& options) const {
  const bool is_head = IsHead(hparams);
  const bool reads_features = options.encodes || options.injects;
  const int hidden_floats = reads_features ? static_cast<int>(model->hparams.n_embd_inp_enc())
                            : is_head      ? HiddenFloats()
                                           : 0;
  Built built(LibraryInputs::Batch(num_sequences, tokens_of_each, hidden_floats, !options.injects));
  const int64_t most = max_library_nodes != 0
                           ? max_library_nodes
                           : std::max<int64_t>(2048, 32 * int64_t(model->n_tensors()));
  built.result = std::make_unique<llm_graph_result>(most);
  const int num_slots = options.keeps_states ? tokens_of_each : 1;
  MakeStates(num_sequences, num_slots, &built);
  const llama_ubatch batch = built.batch.ubatch();
  const llama_memory_context_ptr memory_context = MakeMemoryContext(batch);
  llm_graph_params params = {};
  params.arch = model->arch;
  params.hparams = model->hparams;
  params.cparams = cparams;
  params.cparams.n_rs_seq = static_cast<uint32_t>(num_slots - 1);
  params.cparams.embeddings_nextn = is_head || options.has_head_rows;
  params.ubatch = batch;
  params.gtype = options.encodes                             ? LLM_GRAPH_TYPE_ENCODER
                 : hparams.draft_source == Speculation::kMtp ? LLM_GRAPH_TYPE_DECODER_MTP
                                                             : LLM_GRAPH_TYPE_DEFAULT;
  params.cvec = &control_vector;
  params.loras = &loras;
  params.mctx = memory_context.get();
  params.cross = &cross;
  params.prec_policy = &model->prec_policy;
  params.n_outputs = num_outputs;
  params.cb = [&built](const llama_ubatch&, ggml_tensor* tensor, const char* name, int layer) {
    if (layer < 0) {
      ggml_set_name(tensor, name);
      return;
    }
    ggml_format_name(tensor, "%s-%d", name, layer);
    if (std::string_view(name) == "l_out") built.block_outputs[layer] = tensor;
  };
  params.res = built.result.get();
  model->build_graph(params);
  // Uses the input of a block as the output of the block before, since models name that output
  // differently.
  const std::vector<ggml_tensor*>& inputs = built.result->t_layer_inp;
  for (int layer = 0; layer < static_cast<int>(inputs.size()); ++layer) {
    if (inputs[layer] != nullptr) built.block_outputs[layer - 1] = inputs[layer];
  }
  return built;
}

// Finds cache nodes, and adds Grok's scale and soft cap, which libllama applies only without flash
// attention.
Result<CacheNodes> LibraryModel::Impl::FindNodes(llm_graph_result* built) const {
  EBB_ASSIGN_OR_RETURN(CacheNodes nodes, FindCacheNodes(built));
  if (model->arch != LLM_ARCH_GROK) return nodes;
  for (CacheAttention& call : nodes.attentions) {
    call.scale *= model->hparams.f_attn_out_scale;
    call.soft_cap = model->hparams.f_attn_logit_softcapping;
  }
  return nodes;
}

// Decides whether keys can be rotated to other positions: RoPE must be the last operation on keys,
// and the same in all layers, except for its base in layers with windows.
void LibraryModel::Impl::ReadRopes(const CacheNodes& nodes, const llm_graph_result& built) {
  Hyperparameters& h = hparams;
  h.rope_base = cparams.rope_freq_base;
  h.rope_frequency_scale = cparams.rope_freq_scale;
  h.rope_original_context = static_cast<int>(cparams.n_ctx_orig_yarn);
  h.has_short_rope_factors = cparams.n_ctx_seq < model->hparams.n_ctx_train;
  h.yarn_ext_factor = cparams.yarn_ext_factor;
  h.yarn_attn_factor = cparams.yarn_attn_factor;
  h.yarn_beta_fast = cparams.yarn_beta_fast;
  h.yarn_beta_slow = cparams.yarn_beta_slow;
  h.has_keys_before_rope = true;
  h.can_rotate_keys = true;
  std::vector<Rope> plain, windows;
  for (const CacheAttention& call : nodes.attentions) {
    if (call.k == nullptr) continue;
    const ggml_tensor* node = RopeOf(call.k);
    const bool is_turned = node != nullptr && PaddedHeadDim(call.key_dim) == h.head_dim &&
                           node->src[0]->ne[0] == call.key_dim &&
                           node->src[0]->ne[1] == call.num_kv_heads;
    if (!is_turned) {
      h.has_keys_before_rope = h.can_rotate_keys = false;
      rope_factors.clear();
      return;
    }
    const Rope rope = ReadRope(node);
    rope_factors.push_back(rope.factors);
    (call.in_window ? windows : plain).push_back(rope);
  }
  for (const auto& input : built.inputs) {
    if (dynamic_cast<const llm_graph_input_attn_temp*>(input.get()) != nullptr) {
      h.can_rotate_keys = false;  // queries are scaled by their position
    }
  }
  const auto alike = [](std::vector<Rope> ropes) {
    for (Rope& rope : ropes) rope.factors = nullptr;
    return std::ranges::adjacent_find(ropes, std::not_equal_to<>()) == ropes.end();
  };
  if (plain.empty()) plain = windows;
  Rope in_windows = windows.empty() ? plain.front() : windows.front();
  h.rope_base_in_windows = in_windows.base;
  const bool is_plain_mode =
      plain.front().mode == GGML_ROPE_TYPE_NORMAL || plain.front().mode == GGML_ROPE_TYPE_NEOX;
  // TurnNode() does not scale frequencies in layers with windows, so keys cannot be re-rotated if
  // the model scales them there.
  if (!alike(plain) || !alike(windows) || !is_plain_mode ||
      (!windows.empty() && in_windows.scale != 1)) {
    h.can_rotate_keys = false;
  }
  const Rope& rope = plain.front();
  h.rope_dims = rope.dims;
  h.rope_mode = rope.mode;
  h.rope_base = rope.base;
  h.rope_frequency_scale = rope.scale;
  h.rope_original_context = rope.original_context;
  h.yarn_ext_factor = rope.ext_factor;
  h.yarn_attn_factor = rope.attn_factor;
  h.yarn_beta_fast = rope.beta_fast;
  h.yarn_beta_slow = rope.beta_slow;
}

Status LibraryModel::Impl::ReadShape(const CacheNodes& nodes, llm_graph_result* built) {
  if (nodes.attentions.empty()) return Unsupported("it has no attention over a KV cache");
  const CacheAttention& first = nodes.attentions.front();
  const llama_hparams& from = model->hparams;
  Hyperparameters& h = hparams;
  bool has_windows = false;
  std::vector<const CacheAttention*> layers;  // the calls that store rows
  for (const CacheAttention& call : nodes.attentions) {
    EBB_RETURN_IF_ERROR(CheckAttention(call, first));
    const auto read =
        std::ranges::find(layers, call.layer, [](const auto* stored) { return stored->layer; });
    const auto layer = static_cast<int>(read - layers.begin());
    if ((call.k == nullptr) == (read == layers.end())) {
      return Refuse(call, "rows that are read before they are stored, or stored twice,");
    }
    h.layers_read.push_back(layer);
    if (call.k == nullptr) {
      if (!ReadsAlike(call, **read)) return Refuse(call, "rows of a layer that it reads otherwise");
      continue;
    }
    layers.push_back(&call);
    sinks.push_back(call.sinks);
    h.head_dim = std::max({h.head_dim, call.key_dim, call.value_dim});
    if (call.in_window && (from.swa_type != LLAMA_SWA_TYPE_STANDARD || from.n_swa == 0)) {
      return Refuse(call, "attention within chunks");
    }
    h.kv_heads.push_back(call.num_kv_heads);
    h.windows.push_back(call.in_window ? static_cast<int>(from.n_swa) : 0);
    has_windows = has_windows || call.in_window;
  }
  if (!has_windows) h.windows.clear();
  h.has_values = !std::ranges::all_of(layers, &CacheAttention::value_in_key);
  h.num_layers = static_cast<int>(layers.size());
  h.embed_dim = static_cast<int>(from.n_embd);
  h.num_q_heads = first.num_q_heads;
  h.head_dim = PaddedHeadDim(h.head_dim);
  h.attention_scale = first.scale;
  h.attention_soft_cap = first.soft_cap;
  h.trained_context = static_cast<int>(cparams.n_ctx_seq);
  h.vocab_size = static_cast<int>(built->t_logits->ne[0]);
  for (uint32_t layer = 0; layer < from.n_layer(); ++layer) {
    const uint64_t experts = uint64_t{from.n_ff_exp(layer)} * from.n_expert_used(layer);
    const uint64_t widest = std::max<uint64_t>(from.n_ff(layer), experts);
    h.feed_forward_dim = std::max(h.feed_forward_dim, static_cast<int>(widest));
  }
  return OkStatus();
}

ggml_tensor* LibraryModel::Impl::InputOf(int block, ggml_cgraph* graph) const {
  const ggml_tensor* const weight = model->layers[block].attn_norm;
  for (int i = 0; weight != nullptr && i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op == GGML_OP_MUL && node->src[1] == weight && node->src[0]->op == GGML_OP_RMS_NORM) {
      return node->src[0]->src[0];
    }
  }
  return nullptr;
}

WeightScales LibraryModel::Impl::ScalesOf(const WeightCopies& copies) const {
  WeightScales all = scales;
  for (const auto& [weight, scale] : scales) {
    // A weight that no node reads has no copy, and needs no scale.
    const auto copy = copies.find(weight), copy_of_scale = copies.find(scale);
    if (copy == copies.end() || copy_of_scale == copies.end()) continue;
    all.emplace(copy->second, copy_of_scale->second);
  }
  return all;
}

void LibraryModel::Impl::FindStates() {
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid*>(memory.get())) {
    recurrent = hybrid->get_mem_recr();
  }
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid_iswa*>(memory.get())) {
    recurrent = hybrid->get_mem_recr();
  }
  if (recurrent == nullptr) return;
  for (auto* of_layers : {&recurrent->r_l, &recurrent->s_l, &recurrent->p_l}) {
    for (ggml_tensor*& tensor : *of_layers) {
      if (tensor == nullptr) continue;
      state_places.push_back(
          {.tensor = &tensor, .type = tensor->type, .floats = tensor->ne[0], .name = tensor->name});
    }
  }
}

// Asks only builders that are known to write several states, since others stop the program at the
// shape of the state tensors; of these, counts what the graph writes to the tensors.
bool LibraryModel::Impl::CanKeepStates() const {
  constexpr std::array kOthers = {
#ifdef EBB_LLAMA_IS_PATCHED
      LLM_ARCH_JAMBA,     LLM_ARCH_PLAMO2,    LLM_ARCH_KIMI_LINEAR,
#endif  // EBB_LLAMA_IS_PATCHED
      LLM_ARCH_QWEN3NEXT, LLM_ARCH_FALCON_H1, LLM_ARCH_GRANITE_HYBRID};
  if (!llm_arch_supports_rs_rollback(model->arch) &&
      std::ranges::find(kOthers, model->arch) == kOthers.end()) {
    return false;
  }
  constexpr int kTokens = 3;
  const Built built = Build(1, kTokens, 1, {.keeps_states = true});
  ggml_cgraph* const graph = built.result->get_gf();
  return std::ranges::all_of(built.states, [&](const StateTensor& state) {
    size_t written = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      const ggml_tensor* const node = ggml_graph_node(graph, i);
      if (node->op == GGML_OP_CPY && node->view_src == state.tensor) written += ggml_nbytes(node);
    }
    return written == kTokens * state.bytes;
  });
}

Status LibraryModel::Impl::BuildDry() {
  const bool encodes = llama_model_has_encoder(model) && !IsHead(hparams);
  if (!model->hparams.causal_attn || encodes) {
    return Unsupported("it does not generate text token by token");
  }
  llama_cparams for_memory = cparams;
  for_memory.n_ctx = for_memory.n_ctx_seq = kLibraryCacheRows;
  memory.reset(hparams.has_cache ? model->create_memory({.type_k = GGML_TYPE_F16,
                                                         .type_v = GGML_TYPE_F16,
                                                         .swa_full = true,
                                                         .ctx_type = cparams.ctx_type,
                                                         .mem_other = nullptr},
                                                        for_memory)
                                 : MakeAssistantMemory(for_memory));
  EBB_RETURN_IF_ERROR(CheckMemory(memory.get()));
  FindStates();
  for (const auto& [name, tensor] : model->tensors_by_name) weights.insert(tensor);
  const MutexLock lock(mutex);
  // Builders may compute several tokens differently from one, so the products are taken from a
  // graph of several.
  constexpr int kSeveral = 8;
  products = FindProducts(Build(1, kSeveral, 1, {}).result->get_gf(), weights);
  Built built = Build(1, 1, 1, {});
  if (!built.states.empty()) {
    const StateTensor& last = built.states.back();
    hparams.state_bytes =
        (last.offset + last.bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    for (const StateTensor& state : built.states) {
      hparams.state_parts.push_back({.offset = state.offset, .bytes = state.bytes});
    }
    hparams.keeps_states = CanKeepStates();
  }
  llm_graph_result* const result = built.result.get();
  EBB_ASSIGN_OR_RETURN(const CacheNodes nodes, FindNodes(result));
  if (result->t_logits == nullptr) return Unsupported("it computes no logits");
  if (hparams.draft_source == Speculation::kDflash) {
    EBB_RETURN_IF_ERROR(CheckInjects());
  } else if (IsHead(hparams)) {
    EBB_RETURN_IF_ERROR(CheckHead(*result));
  }
  selects_outputs = std::ranges::any_of(result->inputs, [](const auto& input) {
    return dynamic_cast<const llm_graph_input_out_ids*>(input.get()) != nullptr;
  });
  EBB_RETURN_IF_ERROR(CheckRopes(result->get_gf()));
  EBB_RETURN_IF_ERROR(CheckWeightTypes(result->get_gf(), weights));
  if (hparams.has_cache) {
    EBB_RETURN_IF_ERROR(ReadShape(nodes, result));
    ReadRopes(nodes, *result);
  } else {
    EBB_RETURN_IF_ERROR(ReadAssistantShape(nodes, *result));
  }
  num_nodes = ggml_graph_n_nodes(result->get_gf());
  groups = FindWeightGroups(result->get_gf(), weights);
  for (int i = 0; i < num_nodes; ++i) {
    const ggml_tensor* node = ggml_graph_node(result->get_gf(), i);
    caps_logits |= node->op == GGML_OP_UNARY && ggml_get_unary_op(node) == GGML_UNARY_OP_TANH;
  }
  scales = FindUnreadScales(*model, WeightsRead(result->get_gf(), weights));
  const size_t num_tensors = ggml_used_mem(result->get_ctx()) / ggml_tensor_overhead();
  max_library_nodes = static_cast<int64_t>(num_tensors) * 3 / 2 + 256;
  // Policies and adapters use one number for a layer of rows and for its block, which holds only if
  // every block has attention.
  const bool all_blocks_attend =
      static_cast<uint32_t>(hparams.num_layers) == model->hparams.n_layer();
  hparams.has_hidden_states = all_blocks_attend;
  for (int i = 0; i + 1 < hparams.num_layers; ++i) {
    hparams.has_hidden_states = hparams.has_hidden_states && built.block_outputs.contains(i);
  }
  takes_adapters = all_blocks_attend;
  for (int i = 0; takes_adapters && i < hparams.num_layers; ++i) {
    takes_adapters = InputOf(i, result->get_gf()) != nullptr;
  }
  takes_query_channels = std::ranges::all_of(nodes.attentions, [&](const CacheAttention& call) {
    return call.turned_q != nullptr && call.turned_q->ne[0] == hparams.head_dim;
  });
  output_floats = result->t_embd == nullptr ? 0 : static_cast<int>(result->t_embd->ne[0]);
  // Rewrites the graph once and discards it, to show that no node still needs libllama's cache.
  const std::unique_ptr<ggml_context, GgmlDeleter> ctx(
      ggml_init({.mem_size = (num_nodes * 4 + 64) * ggml_tensor_overhead() +
                             ggml_graph_overhead_custom(num_nodes * 3 + 64, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  ggml_cgraph* graph = ggml_new_graph_custom(ctx.get(), num_nodes * 3 + 64, false);
  (void)TakeLookups(result->get_gf(), weights);
  Replacements replacements;
  for (const CacheAttention& call : nodes.attentions) {
    replacements[call.node] = [&](ggml_tensor*) {
      return ggml_reshape_2d(ctx.get(),
                             ggml_cont(ctx.get(), ggml_permute(ctx.get(), call.q, 0, 2, 1, 3)),
                             int64_t{call.key_dim} * call.num_q_heads, call.q->ne[1]);
    };
  }
  EBB_RETURN_IF_ERROR(
      RewriteGraph(result, nodes, ctx.get(), {.scales = &scales}, replacements, graph));
  weights_read = WeightsRead(graph, weights);
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_MUL_MAT_ID) continue;
    const auto [experts, chosen] = std::pair(node->src[0], node->src[2]);
    expert_shares[experts] =
        std::min(1.0, static_cast<double>(chosen->ne[0]) / static_cast<double>(experts->ne[2]));
  }
  return OkStatus();
}

LibraryModel::LibraryModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LibraryModel::~LibraryModel() = default;

Result<std::unique_ptr<LibraryModel>> LibraryModel::Open(const GgufFile& file,
                                                         const ModelOptions& options) {
  InitLlamaRuntime();
  std::string architecture;
  EBB_RETURN_IF_ERROR(file.Read("general.architecture", GgufFile::Need::kRequired, &architecture));
  const auto in_family = [&](const Status& status) {
    if (status.ok()) return status;
    return Status(status.code(),
                  fmt::format("model family \"{}\": {}", architecture, status.message()));
  };
  if (llm_arch_from_string(architecture) == LLM_ARCH_UNKNOWN) {
    return Unsupported(fmt::format("model family \"{}\" is not supported", architecture));
  }
  EBB_RETURN_IF_ERROR(CheckLibraryMetadata(file, architecture));
  EBB_RETURN_IF_ERROR(CheckTokenizer(file));
  const bool loads_mtp =
      options.loads_mtp && !options.for_device && HasMtpLayer(file, architecture);
  auto impl = std::make_unique<Impl>();
  EBB_RETURN_IF_ERROR(in_family(RunChecked([&]() -> Status {
    impl->hparams.draft_source = DraftSourceOf(architecture);
    // libllama counts the layers of an assistant as layers for multi-token prediction.
    const bool is_assistant = impl->hparams.draft_source == Speculation::kAssistant;
    EBB_ASSIGN_OR_RETURN(impl->owned, LoadWithoutWeights(file, loads_mtp || is_assistant));
    impl->model = impl->owned.get();
    EBB_RETURN_IF_ERROR(CheckAddedTokens(*impl->model));
    if (IsHead(impl->hparams)) EBB_RETURN_IF_ERROR(impl->BindTo(options.target.get()));
    EBB_ASSIGN_OR_RETURN(impl->cparams, ContextParams(*impl->model, options));
    EBB_RETURN_IF_ERROR(impl->BuildDry());
    return CheckSoftCaps(file, architecture, impl->hparams.attention_soft_cap != 0,
                         impl->caps_logits);
  })));
  std::unique_ptr<LibraryModel> model(new LibraryModel(std::move(impl)));
  if (!loads_mtp) {
    model->impl_->mtp_obstacle = !options.loads_mtp ? "the model was loaded without its MTP layer"
                                 : options.for_device
                                     ? "an accelerator does not run MTP layers"
                                     : "the file has no MTP layer that ebb can run";
    return model;
  }
  const Status opened = RunChecked([&] { return model->OpenMtp(); });
  if (opened.ok()) return model;
  ModelOptions without_mtp = options;
  without_mtp.loads_mtp = false;
  model.reset();
  EBB_ASSIGN_OR_RETURN(model, Open(file, without_mtp));
  model->impl_->mtp_obstacle = opened.message();
  return model;
}

const Hyperparameters& LibraryModel::hparams() const { return impl_->hparams; }
ggml_tensor* LibraryModel::RopeFactors(int layer) const {
  return impl_->rope_factors.empty() ? nullptr : impl_->rope_factors[layer];
}
ggml_tensor* LibraryModel::Sinks(int layer) const { return impl_->sinks[layer]; }
const std::vector<ggml_tensor*>& LibraryModel::weights_read() const { return impl_->weights_read; }
const std::vector<const ggml_tensor*>& LibraryModel::multiplied_weights() const {
  return impl_->products.weights;
}
const std::string& LibraryModel::computed_product() const { return impl_->products.computed; }
VocabModel LibraryModel::TakeModel() { return std::move(impl_->owned); }
uint64_t LibraryModel::weight_bytes() const { return impl_->sizes.weight_bytes; }
uint64_t LibraryModel::lookup_bytes() const { return impl_->sizes.lookup_bytes; }
uint64_t LibraryModel::expert_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [experts, share] : impl_->expert_shares) bytes += ggml_nbytes(experts);
  return bytes;
}
double LibraryModel::expert_share() const {
  double read = 0;
  for (const auto& [experts, share] : impl_->expert_shares) {
    read += share * static_cast<double>(ggml_nbytes(experts));
  }
  return impl_->expert_shares.empty() ? 1 : read / static_cast<double>(expert_bytes());
}

Status LibraryModel::CheckTakesMarks(EvictionLayout layout) const {
  if (layout == EvictionLayout::kQueryLastChannel && !impl_->takes_query_channels) {
    return Unsupported(
        "eviction logits in channels of queries (query_last_channel) need RoPE of whole query "
        "heads "
        "in every layer, which this model does not have");
  }
  if (layout == EvictionLayout::kAdapter && !impl_->takes_adapters) {
    return Unsupported(
        "eviction logits by an adapter's tensors need attention behind an RMS norm in every layer, "
        "which this model does not have");
  }
  return OkStatus();
}

Status LibraryModel::LoadWeights(const GgufFile& file, WeightMode mode, bool for_device,
                                 WeightBuffers* buffers) {
  return RunChecked([&]() -> Status {
    WeightGroups groups = impl_->groups;
    if (impl_->mtp != nullptr) {
      const WeightGroups& of_mtp = impl_->mtp->impl_->groups;
      groups.insert(groups.end(), of_mtp.begin(), of_mtp.end());
    }
    EBB_ASSIGN_OR_RETURN(
        impl_->sizes, PlaceLibraryWeights(file, mode, for_device, groups, impl_->model, buffers));
    EBB_RETURN_IF_ERROR(impl_->JoinPlacedWeights());
    if (mode != WeightMode::kUnread) EBB_RETURN_IF_ERROR(impl_->CheckTokenTable());
    return impl_->mtp == nullptr ? OkStatus() : impl_->mtp->impl_->JoinPlacedWeights();
  });
}

Status LibraryModel::Impl::JoinPlacedWeights() {
  joined_context.reset(ggml_init({.mem_size = model->n_tensors() * ggml_tensor_overhead(),
                                  .mem_buffer = nullptr,
                                  .no_alloc = true}));
  if (joined_context == nullptr) return OutOfMemory("no memory for joined weights");
  joined = JoinWeights(groups, joined_context.get());
  return OkStatus();
}

}  // namespace ebb
