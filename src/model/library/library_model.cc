#include "src/model/library/library_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "src/base/head_sizes.h"
#include "src/base/llama_runtime.h"
#include "src/model/hyperparameters.h"
#include "src/model/library/assertion_scope.h"
#include "src/model/library/graph_rewrite.h"
#include "src/model/library/internals.h"
#include "src/model/library/library_inputs.h"
#include "src/model/library/library_weights.h"
#include "src/model/vocabulary.h"

namespace ebb {
namespace {

// Rows that libllama's cache has room for; ebb has rows of its own, so that any number works.
constexpr uint32_t kLibraryCacheRows = 256;
constexpr int kSequences = 1;
// Alignment of the parts of recurrent states, for ggml's kernels.
constexpr size_t kStateAlignment = 64;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Counts above these are errors of a file; libllama would allocate or divide by what they say.
constexpr uint32_t kMaxLayers = 512;
constexpr uint32_t kMaxCount = uint32_t{1} << 24;
constexpr uint32_t kMaxContext = uint32_t{1} << 30;

Status CheckCount(const GgufFile& file, const std::string& key, uint32_t min, uint32_t max) {
  if (file.IsArray(key)) return OkStatus();
  uint32_t count = min;
  EBB_RETURN_IF_ERROR(file.Read(key, GgufFile::Need::kOptional, &count));
  if (count >= min && count <= max) return OkStatus();
  return Corrupt(fmt::format("{} is {}; expected {} to {}", key, count, min, max));
}

// libllama divides by these or allocates memory for as many elements before it checks anything.
Status CheckCounts(const GgufFile& file, const std::string& architecture) {
  struct Range {
    std::string_view key;
    uint32_t min, max;
  };
  constexpr Range kRanges[] = {
      {"block_count", 1, kMaxLayers},
      {"context_length", 1, kMaxContext},
      {"embedding_length", 1, kMaxCount},
      {"feed_forward_length", 0, kMaxCount},
      {"expert_feed_forward_length", 0, kMaxCount},
      {"expert_shared_feed_forward_length", 0, kMaxCount},
      {"expert_count", 0, 4096},
      {"expert_used_count", 0, 4096},
      {"attention.head_count", 1, 65536},
      {"attention.head_count_kv", 1, 65536},
      {"attention.key_length", 1, 65536},
      {"attention.value_length", 1, 65536},
      {"rope.dimension_count", 0, 65536},
      {"full_attention_interval", 1, kMaxLayers},
      {"interleave_moe_layer_step", 1, kMaxLayers},
      {"ssm.time_step_rank", 1, 1 << 20},
      {"ssm.inner_size", 1, 1 << 20},
      {"ssm.state_size", 1, 1 << 20},
      {"ssm.conv_kernel", 1, 1 << 10},
      {"ssm.group_count", 0, 1 << 20},
      {"shortconv.l_cache", 1, 1 << 10},
      {"kda.head_dim", 1, 65536},
  };
  for (const Range& range : kRanges) {
    EBB_RETURN_IF_ERROR(
        CheckCount(file, fmt::format("{}.{}", architecture, range.key), range.min, range.max));
  }
  for (const std::string_view name :
       {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
        "attention.group_norm_epsilon"}) {
    const std::string key = fmt::format("{}.{}", architecture, name);
    float epsilon = 0;
    EBB_RETURN_IF_ERROR(file.Read(key, GgufFile::Need::kOptional, &epsilon));
    if (std::isfinite(epsilon) && epsilon >= 0) continue;
    return Corrupt(fmt::format("{} is {}; expected a number from 0 on", key, epsilon));
  }
  return OkStatus();
}

// Refuses metadata that libllama ignores and that changes the results of the model.
Status CheckIgnoredKeys(const GgufFile& file, const std::string& architecture) {
  std::string text;
  const std::string marks = architecture + ".attention.dms.layout";
  EBB_RETURN_IF_ERROR(file.Read(marks, GgufFile::Need::kOptional, &text));
  if (!text.empty()) {
    return Unsupported(fmt::format(
        "{} is \"{}\": only ebb's own decoder runs models that mark rows", marks, text));
  }
  const std::string scaling = architecture + ".rope.scaling.type";
  EBB_RETURN_IF_ERROR(file.Read(scaling, GgufFile::Need::kOptional, &text));
  const std::array<std::string_view, 5> known = {"", "none", "linear", "yarn", "longrope"};
  if (std::ranges::find(known, text) != known.end()) return OkStatus();
  return Unsupported(
      fmt::format("{} is \"{}\"; supported are none, linear, yarn and longrope", scaling, text));
}

// The message without the folder of the source file that it names.
std::string WithoutSourceFolder(std::string message) {
  const size_t name_end = message.find(".cpp:");
  if (name_end == std::string::npos) return message;
  const size_t begin = message.rfind(' ', name_end) + 1;  // 0 where there is none
  const size_t slash = message.rfind('/', name_end);
  if (slash != std::string::npos && slash >= begin) message.erase(begin, slash + 1 - begin);
  return message;
}

// libllama logs the reason of a failure and returns null.
Result<VocabModel> LoadWithoutWeights(const GgufFile& file) {
  const LlamaErrorScope errors;
  ggml_backend_dev_t no_device = nullptr;
  llama_model_params params = llama_model_default_params();
  params.devices = &no_device;
  params.n_gpu_layers = 0;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  params.lazy_mode = LLAMA_LAZY_MODE_OFF;
  params.no_alloc = true;
  params.progress_callback = [](float, void*) { return true; };
  VocabModel model;
  if (file.mappings().size() > 1) {
    std::vector<const char*> paths;
    for (const std::string& path : file.paths()) paths.push_back(path.c_str());
    model.reset(llama_model_load_from_splits(paths.data(), paths.size(), params));
  } else {
    // From the mapping, which a file that was replaced meanwhile is still the same in.
    const std::span<const std::byte> bytes = file.mappings().front().bytes();
    const std::unique_ptr<std::FILE, FileCloser> stream(
        fmemopen(const_cast<std::byte*>(bytes.data()), bytes.size(), "rb"));
    if (stream == nullptr) return ResourceExhausted("no memory is left to read the model's file");
    model.reset(llama_model_load_from_file_ptr(stream.get(), params));
  }
  if (model == nullptr) {
    if (errors.FirstError().find("bad_alloc") != std::string::npos) {
      return ResourceExhausted("no memory is left for the model's description");
    }
    return Corrupt(WithoutSourceFolder(errors.FirstError()));
  }
  return model;
}

float YarnScale(float factor, float multiplier) {
  return factor <= 1 ? 1.0f : 0.1f * multiplier * std::log(factor) + 1.0f;
}

// Chooses what libllama's own contexts choose for a context of the trained length.
Result<llama_cparams> ContextParams(const llama_model& model, const ModelOptions& options) {
  EBB_RETURN_IF_ERROR(CheckRopeOptions(options));
  const llama_hparams& h = model.hparams;
  llama_cparams c = {};
  const float factor =
      options.rope_scaling == RopeScaling::kFromFile ? 1 : std::max(1.0f, options.rope_factor);
  c.n_ctx = static_cast<uint32_t>(static_cast<float>(h.n_ctx_train) * factor);
  c.n_ctx_seq = c.n_ctx;
  c.n_batch = c.n_ubatch = kLibraryCacheRows;
  c.n_seq_max = kSequences;
  c.n_outputs_max = c.n_outputs_max_per_seq = kLibraryCacheRows;
  c.rope_freq_base = h.rope_freq_base_train;
  c.rope_freq_scale = h.rope_freq_scale_train;
  c.n_ctx_orig_yarn = h.n_ctx_orig_yarn != 0 ? h.n_ctx_orig_yarn : h.n_ctx_train;
  c.yarn_ext_factor = h.yarn_ext_factor;
  c.yarn_attn_factor = h.yarn_attn_factor;
  c.yarn_beta_fast = h.yarn_beta_fast;
  c.yarn_beta_slow = h.yarn_beta_slow;
  c.rope_scaling_type = h.rope_scaling_type_train;
  switch (options.rope_scaling) {
    case RopeScaling::kFromFile:
      break;
    case RopeScaling::kNone:
      c.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_NONE;
      break;
    case RopeScaling::kLinear:
      c.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_LINEAR;
      c.rope_freq_scale = 1 / factor;
      break;
    case RopeScaling::kYarn:
      c.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
      c.rope_freq_scale = 1 / factor;
      c.yarn_ext_factor = -1;
      break;
  }
  if (c.rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_NONE) c.rope_freq_scale = 1;
  if (c.yarn_ext_factor < 0) {
    c.yarn_ext_factor = c.rope_scaling_type == LLAMA_ROPE_SCALING_TYPE_YARN ? 1.0f : 0.0f;
  }
  if (c.yarn_ext_factor != 0) {
    const float scale = 1 / c.rope_freq_scale;
    if (h.rope_yarn_log_mul != 0) {
      const bool is_deepseek = model.arch == LLM_ARCH_DEEPSEEK2 && h.rope_yarn_log_mul != 1;
      c.yarn_attn_factor = YarnScale(scale, is_deepseek ? h.rope_yarn_log_mul : 1) /
                           YarnScale(scale, h.rope_yarn_log_mul);
    } else {
      c.yarn_attn_factor = YarnScale(scale, 1);
    }
    // ggml multiplies by this factor itself where ext_factor is set.
    c.yarn_attn_factor *= 1 / (1 + 0.1f * std::log(scale));
  }
  c.yarn_attn_factor *= h.rope_attn_factor;
  c.causal_attn = h.causal_attn;
  c.flash_attn = true;
  c.fused_gdn_ar = c.fused_gdn_ch = true;
  c.fused_lid = true;
  c.fused_dsv4_hc_pre = c.fused_dsv4_hc_comb = c.fused_dsv4_hc_post = true;
  c.kv_unified = true;
  c.no_perf = true;
  c.ctx_type = LLAMA_CONTEXT_TYPE_DEFAULT;
  c.pooling_type = LLAMA_POOLING_TYPE_NONE;
  c.embeddings_layer_inp.resize(h.n_layer() + 1, false);
  return c;
}

// Asked before a graph is built, because builders assert the class of the memory.
Status CheckMemory(const llama_memory_i* memory) {
  if (memory == nullptr) return Unsupported("it does not generate text token by token");
  // Classes that are derived from these keep more than rows and states.
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

// Refuses attention that the kernels cannot compute.
Status CheckAttention(const CacheAttention& call, const CacheAttention& first) {
  if (call.k == nullptr || (call.v == nullptr && !call.value_in_key)) {
    return Refuse(call, "a layer without rows of its own");
  }
  if (call.sinks != nullptr &&
      (call.sinks->type != GGML_TYPE_F32 || ggml_nelements(call.sinks) != call.num_q_heads)) {
    return Refuse(call, "attention with sinks that are not one number in F32 for each head");
  }
  if (call.soft_cap != 0) return Refuse(call, "a soft cap of attention");
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
  if (call.k->type != GGML_TYPE_F32 || (call.v != nullptr && call.v->type != GGML_TYPE_F32)) {
    return Refuse(call, "keys or values that are not computed in F32");
  }
  return OkStatus();
}

struct Rope {
  int dims = 0, mode = 0, original_context = 0;
  float base = 0, scale = 1, ext_factor = 0, attn_factor = 1, beta_fast = 0, beta_slow = 0;
  ggml_tensor* factors = nullptr;

  bool operator==(const Rope& other) const = default;
};

// The place of the sizes of sections among the parameters of GGML_OP_ROPE.
constexpr int kRopeSections = 11;

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

// ggml's kernels check these at the first step alone, where a failed assertion ends the process.
Status CheckRopes(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (node->op != GGML_OP_ROPE) continue;
    const int dims = node->op_params[1];
    if (dims <= 0 || dims % 2 != 0 || dims > node->ne[0]) {
      return Corrupt(fmt::format("RoPE turns {} elements of heads of {}", dims, node->ne[0]));
    }
    int64_t sum = 0;
    for (int section = 0; section < GGML_MROPE_SECTIONS; ++section) {
      const int size = node->op_params[kRopeSections + section];
      if (size < 0) return Corrupt(fmt::format("a section of RoPE has {} elements", size));
      sum += size;
    }
    const bool has_sections = (node->op_params[2] & GGML_ROPE_TYPE_MROPE) != 0;
    if (sum > node->ne[0] || (has_sections && sum == 0)) {
      return Corrupt(
          fmt::format("the sections of RoPE have {} elements of heads of {}", sum, node->ne[0]));
    }
  }
  return OkStatus();
}

}  // namespace

struct LibraryModel::Impl {
  VocabModel owned;  // until TakeModel()
  llama_model* model = nullptr;
  llama_cparams cparams = {};
  std::unique_ptr<llama_memory_i> memory;
  llama_memory_recurrent* recurrent = nullptr;  // of `memory`; null: the model has none
  // The places in libllama's memory that name the tensors of the states; a built graph's own are in
  // there.
  struct StatePlace {
    ggml_tensor** tensor = nullptr;
    ggml_type type = GGML_TYPE_F32;
    int64_t floats = 0;  // of one sequence
    std::string name;
  };
  std::vector<StatePlace> state_places;
  llama_adapter_cvec control_vector;
  llama_adapter_loras loras;
  llama_cross cross;
  mutable std::mutex mutex;  // one graph is built at a time
  // State tensors point here until a step gives them memory.
  alignas(64) std::array<std::byte, 64> state_placeholder = {};
  const std::unique_ptr<ggml_backend_buffer, GgmlDeleter> state_buffer{
      ggml_backend_cpu_buffer_from_ptr(state_placeholder.data(), state_placeholder.size())};
  Hyperparameters hparams;
  std::vector<ggml_tensor*> rope_factors;  // by layer of rows
  int64_t max_library_nodes = 0;           // that libllama may need for a graph; 0: not known yet
  int num_nodes = 0;                       // of the graph of one token
  int output_floats = 0;
  WeightSizes sizes;

  using StateTensor = LibraryInputs::StateTensor;
  struct Built {
    explicit Built(LibraryInputs::Batch batch_in) : batch(std::move(batch_in)) {}

    LibraryInputs::Batch batch;
    std::unique_ptr<ggml_context, GgmlDeleter> state_context;  // null: no recurrent state
    std::vector<StateTensor> states;
    std::unique_ptr<llm_graph_result> result;
    std::map<int, ggml_tensor*> block_outputs;  // by the block's number
  };
  [[nodiscard]] Built Build(int num_sequences, int tokens_of_each, int num_outputs) const;
  // Puts tensors for the states of so many sequences in the place of those of libllama's memory.
  void MakeStates(int num_sequences, Built* built) const;
  // Returns the context that builders ask for places of rows and states of the batch.
  [[nodiscard]] llama_memory_context_ptr MakeMemoryContext(const llama_ubatch& batch) const;
  void FindStates();
  Status BuildDry();
  Status ReadShape(const CacheUse& use, llm_graph_result* built);
  void ReadRopes(const CacheUse& use, const llm_graph_result& built);
};

llama_memory_context_ptr LibraryModel::Impl::MakeMemoryContext(const llama_ubatch& batch) const {
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid*>(memory.get())) {
    llama_kv_cache* rows = hybrid->get_mem_attn();
    rows->clear(false);
    auto context = std::make_unique<llama_memory_hybrid_context>(hybrid, rows->prepare({batch}),
                                                                 std::vector<llama_ubatch>{batch});
    // Its number of rows is not set before. That of the states is left alone: see MakeStates().
    const_cast<llama_kv_cache_context*>(context->get_attn())->apply();
    return context;
  }
  if (auto* hybrid = dynamic_cast<llama_memory_hybrid_iswa*>(memory.get())) {
    llama_kv_cache_iswa* rows = hybrid->get_mem_attn();
    rows->clear(false);
    auto context = std::make_unique<llama_memory_hybrid_iswa_context>(
        hybrid, rows->get_base()->prepare({batch}), rows->get_swa()->prepare({batch}),
        std::vector<llama_ubatch>{batch});
    const_cast<llama_kv_cache_iswa_context*>(context->get_attn())->apply();
    return context;
  }
  return memory->init_full();
}

// Builders see as many cells as there are sequences, each with the state of one of them, and copy
// no state from one cell to another.
void LibraryModel::Impl::MakeStates(int num_sequences, Built* built) const {
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
    ggml_tensor* tensor =
        ggml_new_tensor_2d(built->state_context.get(), place.type, place.floats, num_sequences);
    ggml_set_name(tensor, place.name.c_str());
    tensor->buffer = state_buffer.get();
    tensor->data = ggml_backend_buffer_get_base(state_buffer.get());
    const size_t bytes = ggml_row_size(place.type, place.floats);
    built->states.push_back({.tensor = tensor, .offset = offset, .bytes = bytes});
    offset += (bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    *place.tensor = tensor;
  }
}

LibraryModel::Impl::Built LibraryModel::Impl::Build(int num_sequences, int tokens_of_each,
                                                    int num_outputs) const {
  Built built(LibraryInputs::Batch(num_sequences, tokens_of_each));
  const int64_t most = max_library_nodes != 0
                           ? max_library_nodes
                           : std::max<int64_t>(2048, 32 * int64_t(model->n_tensors()));
  built.result = std::make_unique<llm_graph_result>(most);
  MakeStates(num_sequences, &built);
  const llama_ubatch batch = built.batch.ubatch();
  const llama_memory_context_ptr memory_context = MakeMemoryContext(batch);
  llm_graph_params params = {};
  params.arch = model->arch;
  params.hparams = model->hparams;
  params.cparams = cparams;
  params.ubatch = batch;
  params.gtype = LLM_GRAPH_TYPE_DEFAULT;
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
  // The input of a block is the output of the one before it, whatever the builder calls that.
  const std::vector<ggml_tensor*>& inputs = built.result->t_layer_inp;
  for (int layer = 1; layer < static_cast<int>(inputs.size()); ++layer) {
    if (inputs[layer] != nullptr) built.block_outputs[layer - 1] = inputs[layer];
  }
  return built;
}

// Keys can be rotated to other positions where RoPE is the last operation on them and the same in
// all layers, apart from its base in layers with windows.
void LibraryModel::Impl::ReadRopes(const CacheUse& use, const llm_graph_result& built) {
  Hyperparameters& h = hparams;
  h.rope_base = cparams.rope_freq_base;
  h.rope_frequency_scale = cparams.rope_freq_scale;
  h.rope_original_context = static_cast<int>(cparams.n_ctx_orig_yarn);
  h.yarn_ext_factor = cparams.yarn_ext_factor;
  h.yarn_attn_factor = cparams.yarn_attn_factor;
  h.yarn_beta_fast = cparams.yarn_beta_fast;
  h.yarn_beta_slow = cparams.yarn_beta_slow;
  h.has_keys_before_rope = true;
  h.can_rotate_keys = true;
  std::vector<Rope> plain, windows;
  for (const CacheAttention& call : use.attentions) {
    const ggml_tensor* node = RopeOf(call.k);
    const bool is_turned = node != nullptr && call.key_dim == h.head_dim &&
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
  // TurnNode() scales no frequency in windows.
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

Status LibraryModel::Impl::ReadShape(const CacheUse& use, llm_graph_result* built) {
  if (use.attentions.empty()) return Unsupported("it has no attention over a KV cache");
  const CacheAttention& first = use.attentions.front();
  const llama_hparams& from = model->hparams;
  Hyperparameters& h = hparams;
  bool has_windows = false;
  int last_layer = -1;
  for (const CacheAttention& call : use.attentions) {
    EBB_RETURN_IF_ERROR(CheckAttention(call, first));
    if (call.layer <= last_layer) return Refuse(call, "a second reader of a layer's rows");
    last_layer = call.layer;
    h.head_dim = std::max({h.head_dim, call.key_dim, call.value_dim});
    if (call.in_window && (from.swa_type != LLAMA_SWA_TYPE_STANDARD || from.n_swa == 0)) {
      return Refuse(call, "attention within chunks");
    }
    h.kv_heads.push_back(call.num_kv_heads);
    h.windows.push_back(call.in_window ? static_cast<int>(from.n_swa) : 0);
    has_windows = has_windows || call.in_window;
  }
  if (!has_windows) h.windows.clear();
  h.num_layers = static_cast<int>(use.attentions.size());
  h.embed_dim = static_cast<int>(from.n_embd);
  h.num_q_heads = first.num_q_heads;
  h.head_dim = (h.head_dim + kHeadDimStep - 1) / kHeadDimStep * kHeadDimStep;
  h.attention_scale = first.scale;
  h.trained_context = static_cast<int>(cparams.n_ctx_seq);
  h.vocab_size = static_cast<int>(built->t_logits->ne[0]);
  for (uint32_t layer = 0; layer < from.n_layer(); ++layer) {
    const uint64_t experts = uint64_t{from.n_ff_exp(layer)} * from.n_expert_used(layer);
    const uint64_t widest = std::max<uint64_t>(from.n_ff(layer), experts);
    h.feed_forward_dim = std::max(h.feed_forward_dim, static_cast<int>(widest));
  }
  return OkStatus();
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

Status LibraryModel::Impl::BuildDry() {
  if (!model->hparams.causal_attn || llama_model_has_encoder(model)) {
    return Unsupported("it does not generate text token by token");
  }
  llama_cparams for_memory = cparams;
  for_memory.n_ctx = for_memory.n_ctx_seq = kLibraryCacheRows;
  memory.reset(model->create_memory({.type_k = GGML_TYPE_F16,
                                     .type_v = GGML_TYPE_F16,
                                     .swa_full = true,
                                     .ctx_type = LLAMA_CONTEXT_TYPE_DEFAULT,
                                     .mem_other = nullptr},
                                    for_memory));
  EBB_RETURN_IF_ERROR(CheckMemory(memory.get()));
  FindStates();
  Built built = Build(1, 1, 1);
  if (!built.states.empty()) {
    const StateTensor& last = built.states.back();
    hparams.state_bytes =
        (last.offset + last.bytes + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
  }
  llm_graph_result* const result = built.result.get();
  EBB_ASSIGN_OR_RETURN(const CacheUse use, FindCacheUse(result));
  if (result->t_logits == nullptr) return Unsupported("it computes no logits");
  EBB_RETURN_IF_ERROR(CheckRopes(result->get_gf()));
  EBB_RETURN_IF_ERROR(ReadShape(use, result));
  ReadRopes(use, *result);
  num_nodes = ggml_graph_n_nodes(result->get_gf());
  const size_t num_tensors = ggml_used_mem(result->get_ctx()) / ggml_tensor_overhead();
  max_library_nodes = static_cast<int64_t>(num_tensors) * 3 / 2 + 256;
  // Policies name a layer of rows and the block that it is in by one number.
  hparams.has_hidden_states = built.block_outputs.size() + 1 >= model->hparams.n_layer() &&
                              static_cast<uint32_t>(hparams.num_layers) == model->hparams.n_layer();
  output_floats = result->t_embd == nullptr ? 0 : static_cast<int>(result->t_embd->ne[0]);
  // The rewritten graph is thrown away: it shows that nothing is left of libllama's cache.
  const std::unique_ptr<ggml_context, GgmlDeleter> ctx(
      ggml_init({.mem_size = (num_nodes * 4 + 64) * ggml_tensor_overhead() +
                             ggml_graph_overhead_custom(num_nodes * 3 + 64, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  ggml_cgraph* graph = ggml_new_graph_custom(ctx.get(), num_nodes * 3 + 64, false);
  return RewriteGraph(
      result, use, ctx.get(), {},
      [&](size_t, const CacheAttention& call) {
        return ggml_reshape_2d(ctx.get(),
                               ggml_cont(ctx.get(), ggml_permute(ctx.get(), call.q, 0, 2, 1, 3)),
                               int64_t{call.key_dim} * call.num_q_heads, call.q->ne[1]);
      },
      graph);
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
  if (options.for_device) return in_family(Unsupported("it runs on the CPU only"));
  EBB_RETURN_IF_ERROR(CheckCounts(file, architecture));
  EBB_RETURN_IF_ERROR(CheckIgnoredKeys(file, architecture));
  EBB_RETURN_IF_ERROR(CheckTokenizer(file));
  auto impl = std::make_unique<Impl>();
  EBB_RETURN_IF_ERROR(in_family(RunChecked([&]() -> Status {
    EBB_ASSIGN_OR_RETURN(impl->owned, LoadWithoutWeights(file));
    impl->model = impl->owned.get();
    EBB_RETURN_IF_ERROR(CheckAddedTokens(*impl->model));
    EBB_ASSIGN_OR_RETURN(impl->cparams, ContextParams(*impl->model, options));
    return impl->BuildDry();
  })));
  return std::unique_ptr<LibraryModel>(new LibraryModel(std::move(impl)));
}

std::string LibraryModel::architecture() const { return impl_->model->arch_name(); }
const Hyperparameters& LibraryModel::hparams() const { return impl_->hparams; }
ggml_tensor* LibraryModel::RopeFactors(int layer) const {
  return impl_->rope_factors.empty() ? nullptr : impl_->rope_factors[layer];
}
VocabModel LibraryModel::TakeModel() { return std::move(impl_->owned); }
uint64_t LibraryModel::weight_bytes() const { return impl_->sizes.weight_bytes; }
uint64_t LibraryModel::lookup_bytes() const { return impl_->sizes.lookup_bytes; }
int LibraryModel::OutputFloats() const { return impl_->output_floats; }

Status LibraryModel::LoadWeights(const GgufFile& file, WeightMode mode, WeightBuffers* buffers) {
  return RunChecked([&]() -> Status {
    EBB_ASSIGN_OR_RETURN(impl_->sizes, PlaceLibraryWeights(file, mode, impl_->model, buffers));
    return OkStatus();
  });
}

int LibraryModel::MaxNodes(int attention_nodes_per_layer) const {
  return 3 * impl_->num_nodes + impl_->hparams.num_layers * (attention_nodes_per_layer + 8) + 256;
}

Result<DecoderGraph> LibraryModel::BuildGraph(ggml_context* ctx, const DecoderGraphOptions& options,
                                              AttentionBuilder& attention) const {
  const Impl& impl = *impl_;
  DecoderGraph result;
  const std::lock_guard lock(impl.mutex);
  EBB_RETURN_IF_ERROR(RunChecked([&]() -> Status {
    const int last = impl.hparams.num_layers - 1;
    // Builders leave out the other tokens inside the last block. A policy that watches that block
    // gets all of them, and the logits of the outputs are selected at the end.
    const bool selects_late =
        options.num_outputs > 0 && options.num_outputs < options.num_tokens &&
        std::ranges::find(options.hidden_layers, last) != options.hidden_layers.end();
    const bool has_states = impl.recurrent != nullptr;
    const int num_sequences = has_states ? options.num_sequences : options.num_tokens;
    Impl::Built built = impl.Build(num_sequences, options.num_tokens / num_sequences,
                                   selects_late ? options.num_tokens : options.num_outputs);
    llm_graph_result* const library = built.result.get();
    EBB_ASSIGN_OR_RETURN(const CacheUse use, FindCacheUse(library));
    result.graph = ggml_new_graph_custom(ctx, MaxNodes(options.attention_nodes_per_layer), false);
    for (const int layer : options.hidden_layers) {
      const auto found = built.block_outputs.find(layer);
      ggml_tensor* hidden = found != built.block_outputs.end() ? found->second : library->t_h_nextn;
      if (hidden == nullptr)
        return Unsupported(fmt::format("the output of block {} has no name", layer));
      ggml_set_output(hidden);
      result.hidden.push_back(hidden);
    }
    RewriteOptions rewrite = {.one_token_at_a_time = options.one_token_at_a_time};
    if (!options.logits) rewrite.last = library->t_embd;
    const int head_dim = impl.hparams.head_dim;
    const auto attend = [&](size_t index, const CacheAttention& call) {
      const int64_t num_tokens = call.q->ne[1];
      ggml_tensor* q = ggml_permute(ctx, call.q, 0, 2, 1, 3);
      // All rows are as wide as the widest: zeros behind shorter heads change no product.
      const auto pad = [&](ggml_tensor* heads) {
        const int missing = head_dim - static_cast<int>(heads->ne[0]);
        return missing == 0 ? heads : ggml_pad(ctx, heads, missing, 0, 0, 0);
      };
      const size_t key_bytes = call.key_dim * sizeof(float);
      if (q->nb[1] != key_bytes) q = ggml_cont(ctx, q);
      if (call.scale != impl.hparams.attention_scale) {
        q = ggml_scale(ctx, ggml_cont(ctx, q), call.scale / impl.hparams.attention_scale);
      }
      q = pad(q);
      ggml_tensor* k = ggml_view_3d(ctx, call.k, call.key_dim, call.num_kv_heads, num_tokens,
                                    key_bytes, call.k->nb[1], 0);
      // Latent attention has its values at the beginning of the keys.
      ggml_tensor* const values = call.value_in_key ? call.k : call.v;
      const int value_dim_of_head = call.value_in_key ? call.key_dim : call.value_dim;
      ggml_tensor* v = ggml_view_3d(ctx, values, call.value_dim, call.num_kv_heads, num_tokens,
                                    value_dim_of_head * sizeof(float), values->nb[1], 0);
      k = pad(k);
      v = pad(v);
      ggml_tensor* rope = options.keys_before_rope ? RopeOf(call.k) : nullptr;
      ggml_tensor* out =
          attention.Attend(ctx, result.graph,
                           {.layer = static_cast<int>(index),
                            .q = q,
                            .k = k,
                            .v = v,
                            .k_before_rope = rope == nullptr ? nullptr : rope->src[0],
                            .sinks = call.sinks});
      if (call.value_dim == head_dim) return out;
      const size_t out_bytes = head_dim * sizeof(float);
      return ggml_cont(ctx, ggml_view_3d(ctx, out, call.value_dim, call.num_q_heads, num_tokens,
                                         out_bytes, out_bytes * call.num_q_heads, 0));
    };
    EBB_RETURN_IF_ERROR(RewriteGraph(library, use, ctx, rewrite, attend, result.graph));
    if (options.num_outputs > 0) {
      ggml_tensor*& output = options.logits ? result.logits : result.outputs;
      output = options.logits ? library->t_logits : library->t_embd;
      if (selects_late) {
        result.output_rows = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, options.num_outputs);
        ggml_set_input(result.output_rows);
        output = ggml_get_rows(ctx, output, result.output_rows);
        ggml_build_forward_expand(result.graph, output);
      }
      ggml_set_output(output);
    }
    result.other_context = library->get_ctx();
    std::vector<ggml_tensor*> state_views;
    for (ggml_context* context : {library->get_ctx(), ctx}) {
      for (ggml_tensor* tensor = ggml_get_first_tensor(context); tensor != nullptr;
           tensor = ggml_get_next_tensor(context, tensor)) {
        const auto is_source = [&](const Impl::StateTensor& state) {
          return state.tensor == tensor->view_src;
        };
        if (std::ranges::any_of(built.states, is_source)) state_views.push_back(tensor);
      }
    }
    auto inputs = std::make_unique<LibraryInputs>(std::move(built.result), std::move(built.batch),
                                                  result.output_rows);
    inputs->AddStates(std::move(built.state_context), std::move(built.states),
                      std::move(state_views));
    result.inputs = std::move(inputs);
    return OkStatus();
  }));
  return result;
}

Result<LogitsGraph> LibraryModel::BuildLogits(ggml_context* ctx, int num_tokens,
                                              bool one_token_at_a_time) const {
  const Impl& impl = *impl_;
  LogitsGraph result;
  const std::lock_guard lock(impl.mutex);
  EBB_RETURN_IF_ERROR(RunChecked([&]() -> Status {
    Impl::Built built = impl.Build(num_tokens, 1, num_tokens);
    llm_graph_result* const library = built.result.get();
    ggml_tensor* const outputs = library->t_embd;
    EBB_ASSIGN_OR_RETURN(const CacheUse use, FindCacheUse(library));
    outputs->op = GGML_OP_NONE;
    std::memset(outputs->src, 0, sizeof(outputs->src));
    ggml_set_input(outputs);
    result.graph = ggml_new_graph_custom(ctx, kLogitsGraphMaxNodes, false);
    EBB_RETURN_IF_ERROR(RewriteGraph(
        library, use, ctx, {.one_token_at_a_time = one_token_at_a_time, .first = outputs},
        [](size_t, const CacheAttention& call) { return call.q; }, result.graph));
    result.outputs = outputs;
    result.logits = library->t_logits;
    ggml_set_output(result.logits);
    result.other_context = library->get_ctx();
    result.owner = std::shared_ptr<llm_graph_result>(std::move(built.result));
    return OkStatus();
  }));
  return result;
}

}  // namespace ebb
