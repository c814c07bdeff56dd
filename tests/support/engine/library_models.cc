#include "tests/support/engine/library_models.h"

// Internal linkage, so that the functions that it alone calls are left out.
static int LlamaArchsMain(int argc, char** argv);
#define main LlamaArchsMain
#include <test-llama-archs.cpp>
#undef main
#include <llama-model.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <initializer_list>
#include <map>
#include <random>
#include <string_view>

#include "src/base/llama_runtime.h"
#include "tests/support/random_gguf.h"

namespace ebb {
namespace {

// Large vocabularies continue with tokens that no text has.
constexpr int kMaxOwnTokens = 128;

void AddTokens(gguf_context* metadata, int num_tokens) {
  const int64_t id = gguf_find_key(metadata, "tokenizer.ggml.tokens");
  const int64_t types_id = gguf_find_key(metadata, "tokenizer.ggml.token_type");
  const auto* own_types = static_cast<const int32_t*>(gguf_get_arr_data(metadata, types_id));
  std::vector<std::string> texts;
  std::vector<int32_t> types(own_types, own_types + gguf_get_arr_n(metadata, types_id));
  for (int i = 0; i < num_tokens; ++i) {
    texts.push_back(i < static_cast<int>(types.size()) ? gguf_get_arr_str(metadata, id, i)
                                                       : fmt::format("<{}>", i));
  }
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  types.resize(num_tokens, LLAMA_TOKEN_TYPE_NORMAL);
  gguf_set_arr_str(metadata, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
  gguf_set_arr_data(metadata, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(),
                    types.size());
  gguf_remove_key(metadata, "tokenizer.ggml.scores");
}

// Puts the tokenizer of ebb's own random models in the place of the fixture's, which no program
// can write text with.
Status ReplaceTokenizer(gguf_context* metadata, int num_tokens, const std::string& path) {
  EBB_RETURN_IF_ERROR(WriteRandomGguf({.num_layers = 1,
                                       .embed_dim = 32,
                                       .num_q_heads = 1,
                                       .num_kv_heads = 1,
                                       .head_dim = 32,
                                       .feed_forward_dim = 32,
                                       .num_tokens = std::min(num_tokens, kMaxOwnTokens),
                                       .tokenizer = RandomGgufOptions::Tokenizer::kMinimal},
                                      path));
  const gguf_context_ptr own(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
  std::remove(path.c_str());
  for (int64_t i = gguf_get_n_kv(own.get()) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(own.get(), i);
    if (!key.starts_with("tokenizer.")) gguf_remove_key(own.get(), key.c_str());
  }
  for (int64_t i = gguf_get_n_kv(metadata) - 1; i >= 0; --i) {
    const std::string key = gguf_get_key(metadata, i);
    if (key.starts_with("tokenizer.")) gguf_remove_key(metadata, key.c_str());
  }
  gguf_set_kv(metadata, own.get());
  if (num_tokens > kMaxOwnTokens) AddTokens(metadata, num_tokens);
  return OkStatus();
}

void SetIfThere(gguf_context* metadata, const std::string& key, uint32_t value) {
  const int64_t id = gguf_find_key(metadata, key.c_str());
  if (id >= 0 && gguf_get_kv_type(metadata, id) == GGUF_TYPE_UINT32) {
    gguf_set_val_u32(metadata, key.c_str(), value);
  }
}

// Adds a layer for multi-token prediction. Lists by layer repeat their first element for it, unless
// they have one for it already.
void AddMtpLayer(gguf_context* metadata, const std::string& prefix) {
  const std::string count = prefix + "block_count";
  const uint32_t num_layers = gguf_get_val_u32(metadata, gguf_find_key(metadata, count.c_str()));
  gguf_set_val_u32(metadata, count.c_str(), num_layers + 1);
  gguf_set_val_u32(metadata, (prefix + "nextn_predict_layers").c_str(), 1);
  std::vector<std::string> lists;
  for (int64_t i = 0; i < gguf_get_n_kv(metadata); ++i) {
    const std::string key = gguf_get_key(metadata, i);
    if (!key.starts_with(prefix) || gguf_get_kv_type(metadata, i) != GGUF_TYPE_ARRAY) continue;
    if (gguf_get_arr_n(metadata, i) == num_layers) lists.push_back(key);
  }
  for (const std::string& key : lists) {
    const int64_t id = gguf_find_key(metadata, key.c_str());
    const gguf_type type = gguf_get_arr_type(metadata, id);
    const size_t size = type == GGUF_TYPE_BOOL ? 1 : sizeof(uint32_t);
    const auto* data = static_cast<const char*>(gguf_get_arr_data(metadata, id));
    std::vector<char> longer(data, data + num_layers * size);
    longer.insert(longer.end(), data, data + size);
    gguf_set_arr_data(metadata, key.c_str(), type, longer.data(), num_layers + 1);
  }
}

bool HasEnding(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings, [&](std::string_view end) { return name.ends_with(end); });
}

bool IsScale(std::string_view name) { return HasEnding(name, {".scale", ".input_scale"}); }

// The fixture's random numbers, around 1 in norms; around 0.3 where norms follow norms, so that
// rounding does not grow from layer to layer until libllama differs from itself.
struct SharpTensors {
  tensor_data_params weights;
  float norm;
};
void SetSharpTensor(ggml_tensor* tensor, void* userdata) {
  set_tensor_data(tensor, &static_cast<SharpTensors*>(userdata)->weights);
  if (!HasEnding(tensor->name, {"norm.weight", "norm_2.weight"})) return;
  if (tensor->type != GGML_TYPE_F32) return;
  std::vector<float> weights(ggml_nelements(tensor));
  ggml_backend_tensor_get(tensor, weights.data(), 0, ggml_nbytes(tensor));
  const auto& random = *static_cast<const SharpTensors*>(userdata);
  for (float& weight : weights) weight += random.norm;
  ggml_backend_tensor_set(tensor, weights.data(), 0, ggml_nbytes(tensor));
}

// Adds the joined matrix of a layer's queries, keys and values to a file, in place of the three.
// The context holds it.
ggml_context_ptr AddJoinedQkv(const llama_layer& layer, gguf_context* file) {
  const std::array<ggml_tensor*, 3> parts = {layer.wq, layer.wk, layer.wv};
  int64_t rows = 0;
  for (const ggml_tensor* part : parts) rows += part->ne[1];
  const int64_t columns = layer.wq->ne[0];
  ggml_context_ptr context(
      ggml_init({.mem_size = static_cast<size_t>(rows * columns) * sizeof(float) + 4096,
                 .mem_buffer = nullptr,
                 .no_alloc = false}));
  ggml_tensor* const joined = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, rows);
  std::string name = layer.wq->name;
  ggml_set_name(joined, name.replace(name.find("attn_q"), 6, "attn_qkv").c_str());
  auto* to = static_cast<char*>(joined->data);
  for (ggml_tensor* part : parts) {
    ggml_backend_tensor_get(part, to, 0, ggml_nbytes(part));
    to += ggml_nbytes(part);
  }
  gguf_add_tensor(file, joined);
  return context;
}

// Writes the metadata and the tensors of a model. llama.cpp's own writer leaves out metadata of
// some architectures and refuses others. `joined`: a layer whose queries, keys and values have one
// matrix; null: none has.
Status WriteModel(const llama_model& model, bool with_scales, const llama_layer* joined,
                  gguf_context* metadata, const std::string& path) {
  const gguf_context_ptr file(gguf_init_empty());
  gguf_set_kv(file.get(), metadata);
  ggml_context_ptr context;
  if (joined != nullptr) context = AddJoinedQkv(*joined, file.get());
  const auto is_part = [&](const ggml_tensor* tensor) {
    return joined != nullptr &&
           (tensor == joined->wq || tensor == joined->wk || tensor == joined->wv);
  };
  for (const auto& [name, tensor] : model.tensors_by_name) {
    if (tensor->view_src != nullptr || gguf_find_tensor(file.get(), name.c_str()) >= 0) continue;
    if ((!with_scales && IsScale(name)) || is_part(tensor)) continue;
    gguf_add_tensor(file.get(), tensor);
  }
  const bool is_written = gguf_write_to_file(file.get(), path.c_str(), /*only_meta=*/false);
  return is_written ? OkStatus() : IoError("cannot write " + path);
}

// Whether quantized files have the tensor quantized.
bool IsQuantized(const ggml_tensor& tensor, ggml_type type) {
  return tensor.ne[1] > 1 && tensor.ne[0] % ggml_blck_size(type) == 0 &&
         HasEnding(tensor.name, {".weight"}) &&
         !HasEnding(tensor.name,
                    {"ffn_gate_inp.weight", "conv1d.weight", "conv.weight", "norm.weight"});
}

// Sets the small tensors of a model with repeated weights, and leaves the memory of the others
// untouched.
struct SmallTensors {
  tensor_data_params weights;
  ggml_type type;  // of the others
};
void SetSmallTensor(ggml_tensor* tensor, void* userdata) {
  auto& small = *static_cast<SmallTensors*>(userdata);
  if (!IsQuantized(*tensor, small.type)) set_tensor_data(tensor, &small.weights);
}

// Rows of `columns` random weights, some millions of them.
std::vector<std::byte> RandomRows(ggml_type type, int64_t columns) {
  const int64_t num_rows = std::max<int64_t>(1, (int64_t{4} << 20) / columns);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.03f);
  std::vector<float> wide(num_rows * columns);
  for (float& weight : wide) weight = normal(random);
  std::vector<std::byte> rows(num_rows * ggml_row_size(type, columns));
  ggml_quantize_chunk(type, wide.data(), rows.data(), 0, num_rows, columns, nullptr);
  return rows;
}

Status WriteRepeatedWeights(const llama_model& model, gguf_context* metadata, ggml_type type,
                            const std::string& path) {
  const gguf_context_ptr file(gguf_init_empty());
  gguf_set_kv(file.get(), metadata);
  std::vector<const ggml_tensor*> tensors;
  for (const auto& [name, tensor] : model.tensors_by_name) {
    if (tensor->view_src != nullptr || gguf_find_tensor(file.get(), name.c_str()) >= 0) continue;
    if (IsScale(name)) continue;
    gguf_add_tensor(file.get(), tensor);
    if (IsQuantized(*tensor, type)) gguf_set_tensor_type(file.get(), name.c_str(), type);
    tensors.push_back(tensor);
  }
  if (!gguf_write_to_file(file.get(), path.c_str(), /*only_meta=*/true)) {
    return IoError("cannot write " + path);
  }
  std::ofstream out(path, std::ios::binary | std::ios::app);
  std::map<int64_t, std::vector<std::byte>> rows_of;  // by columns
  for (const ggml_tensor* tensor : tensors) {
    const int64_t index = gguf_find_tensor(file.get(), tensor->name);
    size_t left = gguf_get_tensor_size(file.get(), index);
    const size_t padding = GGML_PAD(left, gguf_get_alignment(file.get())) - left;
    if (!IsQuantized(*tensor, type)) {
      out.write(static_cast<const char*>(tensor->data), static_cast<std::streamsize>(left));
    } else {
      std::vector<std::byte>& rows = rows_of[tensor->ne[0]];
      if (rows.empty()) rows = RandomRows(type, tensor->ne[0]);
      for (; left > 0; left -= std::min(left, rows.size())) {
        out.write(reinterpret_cast<const char*>(rows.data()),
                  static_cast<std::streamsize>(std::min(left, rows.size())));
      }
    }
    out.write(std::string(padding, '\0').data(), static_cast<std::streamsize>(padding));
  }
  out.close();
  return out ? OkStatus() : IoError("cannot write " + path);
}

// The types that llama_model_quantize() writes alone ("pure").
const std::map<std::string, llama_ftype>& QuantizedTypes() {
  static const std::map<std::string, llama_ftype> types = {
      {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
      {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
      {"q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_S},
  };
  return types;
}

Status WriteRepeated(const LibraryModelOptions& options, gguf_context* metadata,
                     const tensor_data_params& weights, const llama_model_params& params,
                     const std::string& path) {
  const std::map<std::string, ggml_type> types = {
      {"q8_0", GGML_TYPE_Q8_0}, {"q4_0", GGML_TYPE_Q4_0}, {"q4_K", GGML_TYPE_Q4_K}};
  const auto type = types.find(options.weight_type);
  if (type == types.end()) return InvalidArgument("no such type of repeated weights");
  const LlamaErrorScope errors;
  SmallTensors small = {.weights = weights, .type = type->second};
  const llama_model_ptr model(llama_model_init_from_user(metadata, SetSmallTensor, &small, params));
  if (model == nullptr) return Unsupported(errors.FirstError());
  return WriteRepeatedWeights(*model, metadata, type->second, path);
}

}  // namespace

LibraryModelOptions Gemma4WithSharedRows() {
  return {.architecture = "gemma4",
          .sizes = {{"block_count", 10}, {"attention.shared_kv_layers", 5}}};
}

std::vector<LibraryModelOptions> AllLibraryModels() {
  std::vector<LibraryModelOptions> models;
  for (const llm_arch arch : llm_arch_all()) {
    if (arch == LLM_ARCH_UNKNOWN || (!arch_supported(arch) && arch != LLM_ARCH_GEMMA4)) continue;
    for (const bool experts : {false, true}) {
      if (experts ? !moe_implemented(arch) : moe_mandatory(arch)) continue;
      models.push_back({.architecture = llm_arch_name(arch), .has_experts = experts});
    }
  }
  return models;
}

std::string NameOf(const LibraryModelOptions& options) {
  return fmt::format("{}, {}{}{}", options.architecture, options.has_experts ? "experts, " : "",
                     options.has_mtp ? "MTP, " : "", options.weight_type);
}

Status WriteLibraryModel(const LibraryModelOptions& options, const std::string& path) {
  InitLlamaRuntime();
  const llm_arch arch = llm_arch_from_string(options.architecture);
  if (arch == LLM_ARCH_UNKNOWN) return Unsupported("no such architecture");
  const gguf_context_ptr metadata = get_gguf_ctx(arch, options.has_experts);
  const std::string prefix = options.architecture + ".";
  SetIfThere(metadata.get(), prefix + "expert_count", 8);
  SetIfThere(metadata.get(), prefix + "expert_used_count", 2);
  const int64_t lora = gguf_find_key(metadata.get(), (prefix + "attention.key_length_mla").c_str());
  if (lora >= 0) {
    SetIfThere(metadata.get(), prefix + "attention.head_count", 4);
    SetIfThere(metadata.get(), prefix + "attention.head_count_kv", 1);
  }
  for (const auto& [key, size] : options.sizes) {
    gguf_set_val_u32(metadata.get(), (prefix + key).c_str(), size);
  }
  for (const auto& [key, by_layer] : options.sizes_by_layer) {
    gguf_set_arr_data(metadata.get(), (prefix + key).c_str(), GGUF_TYPE_UINT32, by_layer.data(),
                      by_layer.size());
  }
  if (options.has_mtp) AddMtpLayer(metadata.get(), prefix);
  if (arch == LLM_ARCH_GEMMA4) {
    // The fixture's pattern is no array, which the loader wants. Heads in windows are half as wide.
    const std::array<bool, 10> in_window = {true, true, true, true, false,
                                            true, true, true, true, false};
    const uint32_t num_layers = gguf_get_val_u32(
        metadata.get(), gguf_find_key(metadata.get(), (prefix + "block_count").c_str()));
    const std::string pattern = prefix + "attention.sliding_window_pattern";
    gguf_remove_key(metadata.get(), pattern.c_str());
    gguf_set_arr_data(metadata.get(), pattern.c_str(), GGUF_TYPE_BOOL, in_window.data(),
                      std::min<size_t>(num_layers, in_window.size()));
    SetIfThere(metadata.get(), prefix + "attention.key_length_swa", 32);
    SetIfThere(metadata.get(), prefix + "attention.value_length_swa", 32);
    gguf_set_val_u32(metadata.get(), (prefix + "rope.dimension_count_swa").c_str(), 32);
  }
  // Embeddings 78 times as large would hide what attention adds.
  if (arch == LLM_ARCH_GROK) {
    gguf_set_val_f32(metadata.get(), (prefix + "embedding_scale").c_str(), 1);
  }
  const auto vocab_size = options.sizes.find("vocab_size");
  const int64_t tokens_id = gguf_find_key(metadata.get(), "tokenizer.ggml.tokens");
  const auto num_tokens = static_cast<int>(vocab_size != options.sizes.end()
                                               ? vocab_size->second
                                               : gguf_get_arr_n(metadata.get(), tokens_id));
  EBB_RETURN_IF_ERROR(ReplaceTokenizer(metadata.get(), num_tokens, path + ".tokenizer"));
  tensor_data_params weights = {};
  weights.seed = 42;
  weights.stdev = 0.1f;
  llama_model_params params = llama_model_default_params();
  ggml_backend_dev_t no_device = nullptr;
  params.devices = &no_device;
  params.progress_callback = silent_model_load_progress;
  params.load_mtp = options.has_mtp;
  const LlamaErrorScope errors;
  const bool has_norms_behind_norms = arch == LLM_ARCH_GEMMA4 || options.architecture == "gemma3n";
  SharpTensors sharp = {.weights = weights, .norm = has_norms_behind_norms ? 0.3F : 1.0F};
  if (options.repeats_weights) return WriteRepeated(options, metadata.get(), weights, params, path);
  const llama_model_ptr model(
      options.is_sharp
          ? llama_model_init_from_user(metadata.get(), SetSharpTensor, &sharp, params)
          : llama_model_init_from_user(metadata.get(), set_tensor_data, &weights, params));
  if (model == nullptr) return Unsupported(errors.FirstError());
  const llama_layer* const joined =
      options.has_mtp && arch == LLM_ARCH_MIMO2 ? &model->layers.back() : nullptr;
  if (options.weight_type == "f32") {
    return WriteModel(*model, !options.is_sharp, joined, metadata.get(), path);
  }
  const auto type = QuantizedTypes().find(options.weight_type);
  if (type == QuantizedTypes().end()) return InvalidArgument("no such type of weights");
  const std::string wide = path + ".f32";
  EBB_RETURN_IF_ERROR(WriteModel(*model, !options.is_sharp, joined, metadata.get(), wide));
  llama_model_quantize_params quantize = llama_model_quantize_default_params();
  quantize.ftype = type->second;
  quantize.nthread = 1;
  quantize.pure = true;
  const uint32_t failed = llama_model_quantize(wide.c_str(), path.c_str(), &quantize);
  std::remove(wide.c_str());
  return failed == 0 ? OkStatus() : Unsupported(errors.FirstError());
}

}  // namespace ebb
