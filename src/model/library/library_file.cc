#include "src/model/library/library_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

#include "src/base/llama_runtime.h"
#include "src/model/library/assertion_scope.h"

namespace ebb {
namespace {

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Larger counts are errors of the file; libllama would allocate memory or divide by them.
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

// Checks the counts by which libllama divides, or for which it allocates memory, before it checks
// anything.
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
      {"attention.shared_kv_layers", 0, kMaxLayers},
      {"attention.sliding_window", 0, kMaxContext},
      {"rope.dimension_count", 0, 65536},
      {"rope.scaling.original_context_length", 1, kMaxContext},
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

Status CheckRopeNumbers(const GgufFile& file, const std::string& architecture) {
  for (const std::string_view name : {"rope.freq_base", "rope.freq_base_swa",
                                      "rope.scaling.attn_factor", "rope.scaling.factor"}) {
    const std::string key = fmt::format("{}.{}", architecture, name);
    const bool is_factor = name == "rope.scaling.factor";
    float number = 1;
    EBB_RETURN_IF_ERROR(file.Read(key, GgufFile::Need::kOptional, &number));
    // A factor of 0 means no factor.
    if (is_factor ? number == 0 || number >= 1 : number > 0) {
      if (std::isfinite(number)) continue;
    }
    return Corrupt(fmt::format("{} is {}; expected {}", key, number,
                               is_factor ? "1 or more" : "a number above 0"));
  }
  return OkStatus();
}

// Checks the list of layers with windows, whose length libllama does not check.
Status CheckWindowPattern(const GgufFile& file, const std::string& architecture) {
  const std::string key = architecture + ".attention.sliding_window_pattern";
  if (!file.IsArray(key)) return OkStatus();
  std::vector<uint32_t> layers;
  EBB_RETURN_IF_ERROR(file.ReadNumbers(key, &layers));
  uint32_t num_layers = 0;
  EBB_RETURN_IF_ERROR(
      file.Read(architecture + ".block_count", GgufFile::Need::kRequired, &num_layers));
  if (layers.size() >= num_layers) return OkStatus();
  return Corrupt(fmt::format("{} has {} numbers for {} layers", key, layers.size(), num_layers));
}

// Refuses metadata that changes the model's results but that libllama ignores.
Status CheckIgnoredKeys(const GgufFile& file, const std::string& architecture) {
  std::string text;
  const std::string scaling = architecture + ".rope.scaling.type";
  EBB_RETURN_IF_ERROR(file.Read(scaling, GgufFile::Need::kOptional, &text));
  if (text == "longrope" && file.FindTensor("rope_factors_long.weight") == nullptr) {
    return Unsupported(fmt::format("{} is \"longrope\", but the file has no factors", scaling));
  }
  const std::array<std::string_view, 5> known = {"", "none", "linear", "yarn", "longrope"};
  if (std::ranges::find(known, text) != known.end()) return OkStatus();
  return Unsupported(
      fmt::format("{} is \"{}\"; supported are none, linear, yarn and longrope", scaling, text));
}

Status CheckRopeOptions(const ModelOptions& options) {
  const bool scales =
      options.rope_scaling == RopeScaling::kLinear || options.rope_scaling == RopeScaling::kYarn;
  if (scales && !(std::isfinite(options.rope_factor) && options.rope_factor > 1)) {
    return InvalidArgument(
        fmt::format("rope scaling needs a factor above 1, found {}", options.rope_factor));
  }
  if (!scales && options.rope_factor != 0) {
    return InvalidArgument(
        fmt::format("a rope factor ({}) needs RoPE scaling linear or yarn", options.rope_factor));
  }
  return OkStatus();
}

float YarnScale(float factor, float multiplier) {
  return factor <= 1 ? 1.0f : 0.1f * multiplier * std::log(factor) + 1.0f;
}

}  // namespace

Status CheckLibraryMetadata(const GgufFile& file, const std::string& architecture) {
  EBB_RETURN_IF_ERROR(CheckCounts(file, architecture));
  EBB_RETURN_IF_ERROR(CheckRopeNumbers(file, architecture));
  EBB_RETURN_IF_ERROR(CheckWindowPattern(file, architecture));
  return CheckIgnoredKeys(file, architecture);
}

Speculation DraftSourceOf(const std::string& architecture) {
  switch (llm_arch_from_string(architecture)) {
    case LLM_ARCH_EAGLE3:
      return Speculation::kEagle3;
    case LLM_ARCH_GEMMA4_ASSISTANT:
      return Speculation::kAssistant;
    case LLM_ARCH_DFLASH:
      return Speculation::kDflash;
    default:
      return Speculation::kModel;
  }
}

bool HasMtpLayer(const GgufFile& file, const std::string& architecture) {
  constexpr std::array kArchitectures = {
      LLM_ARCH_BAILINGMOE3,    LLM_ARCH_COHERE2MOE, LLM_ARCH_DEEPSEEK2, LLM_ARCH_GLM4_MOE,
      LLM_ARCH_HY_V3,          LLM_ARCH_MIMO2,      LLM_ARCH_QWEN35,    LLM_ARCH_QWEN35MOE,
      LLM_ARCH_NEMOTRON_H_MOE, LLM_ARCH_QWEN3NEXT,  LLM_ARCH_STEP35};
  if (std::ranges::find(kArchitectures, llm_arch_from_string(architecture)) ==
      kArchitectures.end()) {
    return false;
  }
  uint32_t num_layers = 0, num_mtp = 0;
  const bool are_read =
      file.Read(architecture + ".block_count", GgufFile::Need::kOptional, &num_layers).ok() &&
      file.Read(architecture + ".nextn_predict_layers", GgufFile::Need::kOptional, &num_mtp).ok();
  return are_read && num_mtp == 1 && num_layers > 1 &&
         file.FindTensor(fmt::format("blk.{}.nextn.eh_proj.weight", num_layers - 1)) != nullptr;
}

// Loads without weights, and takes the reason of a failure from the log, because libllama only logs
// it and returns null.
Result<VocabModel> LoadWithoutWeights(const GgufFile& file, bool loads_mtp) {
  const LlamaErrorScope errors;
  ggml_backend_dev_t no_device = nullptr;
  llama_model_params params = llama_model_default_params();
  params.devices = &no_device;
  params.n_gpu_layers = 0;
  params.load_mode = LLAMA_LOAD_MODE_NONE;
  params.lazy_mode = LLAMA_LAZY_MODE_OFF;
  params.no_alloc = true;
  params.load_mtp = loads_mtp;
  params.progress_callback = [](float, void*) { return true; };
  VocabModel model;
  if (file.mappings().size() > 1) {
    std::vector<const char*> paths;
    for (const std::string& path : file.paths()) paths.push_back(path.c_str());
    model.reset(llama_model_load_from_splits(paths.data(), paths.size(), params));
  } else {
    // Reads from the mapping, which stays the same even if another program replaces the file.
    const std::span<const std::byte> bytes = file.mappings().front().bytes();
    const std::unique_ptr<std::FILE, FileCloser> stream(
        fmemopen(const_cast<std::byte*>(bytes.data()), bytes.size(), "rb"));
    if (stream == nullptr) return OutOfMemory("no memory is left to read the model's file");
    model.reset(llama_model_load_from_file_ptr(stream.get(), params));
  }
  if (model == nullptr) {
    if (errors.FirstError().find("bad_alloc") != std::string::npos) {
      return OutOfMemory("no memory is left for the model's description");
    }
    return Corrupt(WithoutSourceFolder(errors.FirstError()));
  }
  return model;
}

bool TakesShortRopeFactors(const llama_model& model, uint32_t original_context,
                           const ModelOptions& options) {
  const bool fits =
      options.context > 0 && static_cast<uint32_t>(options.context) <= original_context;
  return fits && std::ranges::any_of(model.layers, [](const llama_layer& layer) {
           return layer.rope_short != nullptr && layer.rope_freqs == nullptr;
         });
}

Result<llama_cparams> ContextParams(const llama_model& model, const ModelOptions& options) {
  EBB_RETURN_IF_ERROR(CheckRopeOptions(options));
  const llama_hparams& h = model.hparams;
  llama_cparams c = {};
  const float factor =
      options.rope_scaling == RopeScaling::kFromFile ? 1 : std::max(1.0f, options.rope_factor);
  c.n_batch = c.n_ubatch = kLibraryCacheRows;
  c.n_seq_max = 1;
  c.n_outputs_max = c.n_outputs_max_per_seq = kLibraryCacheRows;
  c.rope_freq_base = h.rope_freq_base_train;
  c.rope_freq_scale = h.rope_freq_scale_train;
  c.n_ctx_orig_yarn = h.n_ctx_orig_yarn != 0 ? h.n_ctx_orig_yarn : h.n_ctx_train;
  const bool from_file = options.rope_scaling == RopeScaling::kFromFile;
  const auto context = static_cast<double>(from_file ? h.n_ctx_train : c.n_ctx_orig_yarn) * factor;
  if (context > kMaxContext) {
    return InvalidArgument(fmt::format("a rope factor of {} makes the context longer than {}",
                                       options.rope_factor, kMaxContext));
  }
  c.n_ctx = static_cast<uint32_t>(context);
  if (TakesShortRopeFactors(model, c.n_ctx_orig_yarn, options)) c.n_ctx = c.n_ctx_orig_yarn;
  c.n_ctx_seq = c.n_ctx;
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
    // ggml applies this factor itself if ext_factor is set, so it is divided out here.
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

}  // namespace ebb
