#include "src/model/hyperparameters.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>

namespace ebb {
namespace {

using Need = GgufFile::Need;

// Far above any model; they keep every product of sizes within 64 bits and most within 32.
constexpr uint32_t kMaxLayers = 512;
constexpr uint32_t kMaxHeads = 4096;
constexpr uint32_t kMaxHeadDim = 1024;
constexpr uint32_t kMaxDim = 1u << 20;
constexpr uint32_t kMaxContext = 1u << 30;

// Reads the keys of one family: "context_length" is "llama.context_length" in the file.
class FamilyKeys {
 public:
  FamilyKeys(const GgufFile& file, const ModelFamily& family) : file_(file), family_(family) {}

  [[nodiscard]] std::string Name(std::string_view key) const {
    return fmt::format("{}.{}", family_.name, key);
  }
  template <typename T>
  Status Read(std::string_view key, Need need, T* value) const {
    return file_.Read(Name(key), need, value);
  }
  // An integer in [1, max]. *value is its default when the key is optional.
  Status ReadSize(std::string_view key, Need need, uint32_t max, int* value) const {
    auto size = static_cast<uint32_t>(*value);
    EBB_RETURN_IF_ERROR(Read(key, need, &size));
    if (size < 1 || size > max) {
      return Corrupt(fmt::format("{} is {}; expected 1 to {}", Name(key), size, max));
    }
    *value = static_cast<int>(size);
    return OkStatus();
  }
  // A finite number above zero. *value is its default when the key is optional.
  Status ReadPositive(std::string_view key, Need need, float* value) const {
    EBB_RETURN_IF_ERROR(Read(key, need, value));
    if (!std::isfinite(*value) || *value <= 0) {
      return Corrupt(fmt::format("{} is {}; expected a number above 0", Name(key), *value));
    }
    return OkStatus();
  }

 private:
  const GgufFile& file_;
  const ModelFamily& family_;
};

Status RefuseOtherArchitectures(const FamilyKeys& keys) {
  uint32_t num_experts = 0;
  EBB_RETURN_IF_ERROR(keys.Read("expert_count", Need::kOptional, &num_experts));
  if (num_experts != 0) {
    return Unsupported(fmt::format("{} is {}: mixtures of experts are not supported",
                                   keys.Name("expert_count"), num_experts));
  }
  bool causal = true;
  EBB_RETURN_IF_ERROR(keys.Read("attention.causal", Need::kOptional, &causal));
  if (!causal) return Unsupported("attention is not causal: this model does not generate text");
  return OkStatus();
}

Status ReadHeads(const FamilyKeys& keys, Hyperparameters* hparams) {
  Hyperparameters& h = *hparams;
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("attention.head_count", Need::kRequired, kMaxHeads, &h.num_q_heads));
  h.num_kv_heads = h.num_q_heads;
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("attention.head_count_kv", Need::kOptional, kMaxHeads, &h.num_kv_heads));
  if (h.num_q_heads % h.num_kv_heads != 0) {
    return Corrupt(fmt::format("{} query heads cannot share {} key-value heads evenly",
                               h.num_q_heads, h.num_kv_heads));
  }
  h.head_dim = h.embed_dim / h.num_q_heads;
  int value_dim = h.head_dim;
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("attention.key_length", Need::kOptional, kMaxHeadDim, &h.head_dim));
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("attention.value_length", Need::kOptional, kMaxHeadDim, &value_dim));
  if (value_dim != h.head_dim) {
    return Unsupported(fmt::format("keys have {} elements and values {}; only equal sizes work",
                                   h.head_dim, value_dim));
  }
  if (h.head_dim % 2 != 0) {
    return Corrupt(fmt::format("heads have {} elements; RoPE needs an even number", h.head_dim));
  }
  h.rope_dims = h.head_dim;
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("rope.dimension_count", Need::kOptional, kMaxHeadDim, &h.rope_dims));
  if (h.rope_dims != h.head_dim) {
    return Unsupported(fmt::format("RoPE turns {} of {} elements; only all of them work",
                                   h.rope_dims, h.head_dim));
  }
  h.attention_scale = 1.0f / std::sqrt(static_cast<float>(h.head_dim));
  return OkStatus();
}

// For people alone; a whole number may be written as one.
Status ReadTrainedCompression(const FamilyKeys& keys, Hyperparameters* h) {
  constexpr std::string_view kKey = "attention.dms.cr";
  const Status as_number = keys.Read(kKey, Need::kOptional, &h->trained_compression);
  if (!as_number.ok()) {
    uint32_t whole = 0;
    if (!keys.Read(kKey, Need::kOptional, &whole).ok()) return as_number;
    h->trained_compression = static_cast<float>(whole);
  }
  // 0: it does not say.
  const float compression = h->trained_compression;
  if (compression == 0 || (std::isfinite(compression) && compression >= 1)) return OkStatus();
  return Corrupt(fmt::format("{} is {}; expected 1 or more", keys.Name(kKey), compression));
}

Status ReadMarks(const FamilyKeys& keys, Hyperparameters* h) {
  std::string layout;
  EBB_RETURN_IF_ERROR(keys.Read("attention.dms.layout", Need::kOptional, &layout));
  if (layout.empty()) return OkStatus();
  if (layout == "query_last_channel") {
    h->eviction_layout = EvictionLayout::kQueryLastChannel;
  } else if (layout == "adapter") {
    h->eviction_layout = EvictionLayout::kAdapter;
  } else {
    // The logits are part of what the model computes: one that has them elsewhere cannot be run.
    return Unsupported(fmt::format("{} is \"{}\"; supported are query_last_channel and adapter",
                                   keys.Name("attention.dms.layout"), layout));
  }
  // Those of the released models.
  h->eviction_window = 512;
  h->eviction_scale = 100;
  h->eviction_offset = 5;
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("attention.dms.window", Need::kOptional, kMaxContext, &h->eviction_window));
  auto shift = static_cast<uint32_t>(h->eviction_shift);
  EBB_RETURN_IF_ERROR(keys.Read("attention.dms.shift", Need::kOptional, &shift));
  if (shift > static_cast<uint32_t>(h->eviction_window)) {
    return Corrupt(fmt::format("{} is {}; expected 0 to the window, {}",
                               keys.Name("attention.dms.shift"), shift, h->eviction_window));
  }
  h->eviction_shift = static_cast<int>(shift);
  EBB_RETURN_IF_ERROR(
      keys.ReadPositive("attention.dms.alpha_scale", Need::kOptional, &h->eviction_scale));
  EBB_RETURN_IF_ERROR(
      keys.Read("attention.dms.alpha_offset", Need::kOptional, &h->eviction_offset));
  EBB_RETURN_IF_ERROR(ReadTrainedCompression(keys, h));
  if (!std::isfinite(h->eviction_offset)) {
    return Corrupt(fmt::format("{} is {}; expected a number",
                               keys.Name("attention.dms.alpha_offset"), h->eviction_offset));
  }
  return OkStatus();
}

struct RopeScalingChoice {
  RopeScaling kind = RopeScaling::kLinear;
  float factor = 1;
};

Status ReadRopeScaling(const FamilyKeys& keys, RopeScalingChoice* choice) {
  std::string type = "linear";
  EBB_RETURN_IF_ERROR(keys.Read("rope.scaling.type", Need::kOptional, &type));
  if (type == "none") {
    choice->kind = RopeScaling::kNone;
  } else if (type == "linear") {
    choice->kind = RopeScaling::kLinear;
  } else if (type == "yarn") {
    choice->kind = RopeScaling::kYarn;
  } else {
    return Unsupported(fmt::format("{} is \"{}\"; supported are none, linear and yarn",
                                   keys.Name("rope.scaling.type"), type));
  }
  // Zero says "no factor"; the second key is the older name.
  float factor = 0;
  EBB_RETURN_IF_ERROR(keys.Read("rope.scale_linear", Need::kOptional, &factor));
  EBB_RETURN_IF_ERROR(keys.Read("rope.scaling.factor", Need::kOptional, &factor));
  choice->factor = factor == 0 ? 1 : factor;
  if (!std::isfinite(choice->factor) || choice->factor < 1) {
    return Corrupt(fmt::format("{} is {}; expected 1 or more", keys.Name("rope.scaling.factor"),
                               choice->factor));
  }
  return OkStatus();
}

// What the user asked for instead of the file's own scaling.
Status OverrideRopeScaling(const ModelOptions& options, RopeScalingChoice* choice,
                           Hyperparameters* h) {
  const bool scales =
      options.rope_scaling == RopeScaling::kLinear || options.rope_scaling == RopeScaling::kYarn;
  if (scales && !(std::isfinite(options.rope_factor) && options.rope_factor > 1)) {
    return InvalidArgument(
        fmt::format("rope scaling needs a factor above 1, found {}", options.rope_factor));
  }
  if (!scales && options.rope_factor != 0) {
    return InvalidArgument(fmt::format(
        "a rope factor ({}) needs linear or yarn scaling to go with it", options.rope_factor));
  }
  if (options.rope_scaling == RopeScaling::kFromFile) return OkStatus();
  *choice = {.kind = options.rope_scaling, .factor = scales ? options.rope_factor : 1};
  const double context = static_cast<double>(h->rope_original_context) * choice->factor;
  if (context > kMaxContext) {
    return InvalidArgument(fmt::format("a rope factor of {} makes the context longer than {}",
                                       options.rope_factor, kMaxContext));
  }
  h->trained_context = static_cast<int>(context);
  return OkStatus();
}

// Makes of kind and factor what ggml_rope_ext takes, as libllama does.
void ApplyRopeScaling(const RopeScalingChoice& choice, Hyperparameters* h) {
  h->rope_frequency_scale = choice.kind == RopeScaling::kNone ? 1.0f : 1.0f / choice.factor;
  if (choice.kind != RopeScaling::kYarn) return;
  h->yarn_ext_factor = 1;
  // YaRN scales attention by 1 + 0.1 ln(factor). ggml does that by itself when ext_factor is set,
  // so its argument takes it out again, up to rounding.
  const float factor = 1.0f / h->rope_frequency_scale;
  const float magnitude = factor <= 1 ? 1.0f : 0.1f * std::log(factor) + 1.0f;
  h->yarn_attn_factor *= magnitude * (1.0f / (1.0f + 0.1f * std::log(factor)));
}

}  // namespace

Status ReadEvictionMarks(const GgufFile& file, const ModelFamily& family,
                         Hyperparameters* hparams) {
  return ReadMarks(FamilyKeys(file, family), hparams);
}

Result<Hyperparameters> ReadHyperparameters(const GgufFile& file, const ModelFamily& family,
                                            const ModelOptions& options) {
  const FamilyKeys keys(file, family);
  EBB_RETURN_IF_ERROR(RefuseOtherArchitectures(keys));
  Hyperparameters h;
  EBB_RETURN_IF_ERROR(keys.ReadSize("block_count", Need::kRequired, kMaxLayers, &h.num_layers));
  EBB_RETURN_IF_ERROR(keys.ReadSize("embedding_length", Need::kRequired, kMaxDim, &h.embed_dim));
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("feed_forward_length", Need::kRequired, kMaxDim, &h.feed_forward_dim));
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("context_length", Need::kRequired, kMaxContext, &h.trained_context));
  EBB_RETURN_IF_ERROR(
      keys.ReadPositive("attention.layer_norm_rms_epsilon", Need::kRequired, &h.norm_epsilon));
  EBB_RETURN_IF_ERROR(ReadHeads(keys, &h));
  EBB_RETURN_IF_ERROR(ReadMarks(keys, &h));

  h.rope_mode = family.rope_mode;
  h.rope_base = 10000;
  EBB_RETURN_IF_ERROR(keys.ReadPositive("rope.freq_base", Need::kOptional, &h.rope_base));
  h.rope_original_context = h.trained_context;
  EBB_RETURN_IF_ERROR(keys.ReadSize("rope.scaling.original_context_length", Need::kOptional,
                                    kMaxContext, &h.rope_original_context));
  EBB_RETURN_IF_ERROR(
      keys.ReadPositive("rope.scaling.attn_factor", Need::kOptional, &h.yarn_attn_factor));
  RopeScalingChoice scaling;
  EBB_RETURN_IF_ERROR(ReadRopeScaling(keys, &scaling));
  EBB_RETURN_IF_ERROR(OverrideRopeScaling(options, &scaling, &h));
  ApplyRopeScaling(scaling, &h);
  return h;
}

}  // namespace ebb
