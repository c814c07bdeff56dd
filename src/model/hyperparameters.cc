#include "src/model/hyperparameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

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
  [[nodiscard]] bool IsArray(std::string_view key) const { return file_.IsArray(Name(key)); }
  Status ReadNumbers(std::string_view key, std::vector<uint32_t>* numbers) const {
    return file_.ReadNumbers(Name(key), numbers);
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
  // A size for each layer in [1, max], of one number or of an array of them.
  Status ReadSizes(std::string_view key, Need need, uint32_t max, std::vector<int>* sizes) const {
    if (!IsArray(key)) {
      int size = sizes->front();
      EBB_RETURN_IF_ERROR(ReadSize(key, need, max, &size));
      std::ranges::fill(*sizes, size);
      return OkStatus();
    }
    std::vector<uint32_t> numbers;
    EBB_RETURN_IF_ERROR(ReadNumbers(key, &numbers));
    if (numbers.size() != sizes->size()) {
      return Corrupt(
          fmt::format("{} has {} numbers for {} layers", Name(key), numbers.size(), sizes->size()));
    }
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] == 0) {
        return Unsupported(
            fmt::format("{}[{}] is 0: layers without attention or feed-forward are not supported",
                        Name(key), i));
      }
      if (numbers[i] > max) {
        return Corrupt(
            fmt::format("{}[{}] is {}; expected 1 to {}", Name(key), i, numbers[i], max));
      }
      (*sizes)[i] = static_cast<int>(numbers[i]);
    }
    return OkStatus();
  }
  // The same, where all layers must have as many.
  Status ReadCommonSize(std::string_view key, uint32_t max, int num_layers, int* size) const {
    std::vector<int> sizes(num_layers, *size);
    EBB_RETURN_IF_ERROR(ReadSizes(key, Need::kRequired, max, &sizes));
    *size = sizes.front();
    const auto other = std::ranges::find_if(sizes, [&](int s) { return s != *size; });
    if (other == sizes.end()) return OkStatus();
    return Unsupported(
        fmt::format("{} differs between layers ({} and {}); only kv heads may differ", Name(key),
                    *size, *other));
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

Status RefuseSoftCaps(const FamilyKeys& keys) {
  for (const std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    float cap = 0;
    EBB_RETURN_IF_ERROR(keys.Read(key, Need::kOptional, &cap));
    if (cap == 0) continue;
    return Unsupported(
        fmt::format("{} is {}: capped logits are not supported", keys.Name(key), cap));
  }
  return OkStatus();
}

// Which layers have the window: all but every `pattern`-th one, or those that an array marks.
Status ReadWindows(const FamilyKeys& keys, const ModelFamily& family, Hyperparameters* h) {
  constexpr std::string_view kWindow = "attention.sliding_window";
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  uint32_t window = 0;
  if (family.has_windows) EBB_RETURN_IF_ERROR(keys.Read(kWindow, Need::kOptional, &window));
  if (window == 0) return OkStatus();
  if (window > kMaxContext) {
    return Corrupt(
        fmt::format("{} is {}; expected up to {}", keys.Name(kWindow), window, kMaxContext));
  }
  std::vector<uint32_t> has_window;
  if (keys.IsArray(kPattern)) {
    EBB_RETURN_IF_ERROR(keys.ReadNumbers(kPattern, &has_window));
    if (has_window.size() != static_cast<size_t>(h->num_layers)) {
      return Corrupt(fmt::format("{} has {} numbers for {} layers", keys.Name(kPattern),
                                 has_window.size(), h->num_layers));
    }
  } else {
    int pattern = 6;
    EBB_RETURN_IF_ERROR(keys.ReadSize(kPattern, Need::kOptional, kMaxLayers, &pattern));
    for (int i = 0; i < h->num_layers; ++i) has_window.push_back(i % pattern < pattern - 1);
  }
  for (const uint32_t has : has_window)
    h->windows.push_back(has != 0 ? static_cast<int>(window) : 0);
  h->rope_base_in_windows = 10000;
  return keys.ReadPositive("rope.freq_base_swa", Need::kOptional, &h->rope_base_in_windows);
}

// Gemma 3 of 27 B, told by its layers as libllama does, divides by the width of the hidden state
// per head, which is not the size of a head.
constexpr int kLayersOfGemma27B = 62;

Status ReadHeads(const FamilyKeys& keys, const ModelFamily& family, Hyperparameters* hparams) {
  Hyperparameters& h = *hparams;
  EBB_RETURN_IF_ERROR(
      keys.ReadCommonSize("attention.head_count", kMaxHeads, h.num_layers, &h.num_q_heads));
  h.kv_heads.assign(h.num_layers, h.num_q_heads);
  EBB_RETURN_IF_ERROR(
      keys.ReadSizes("attention.head_count_kv", Need::kOptional, kMaxHeads, &h.kv_heads));
  for (const int kv_heads : h.kv_heads) {
    if (h.num_q_heads % kv_heads == 0) continue;
    return Corrupt(fmt::format("{} query heads cannot share {} key-value heads evenly",
                               h.num_q_heads, kv_heads));
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
  const bool by_width = family.has_windows && h.num_layers == kLayersOfGemma27B;
  const int divisor = by_width ? h.embed_dim / h.num_q_heads : h.head_dim;
  h.attention_scale = 1.0f / std::sqrt(static_cast<float>(divisor));
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
  // Values of the released models.
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
  EBB_RETURN_IF_ERROR(CheckRopeOptions(options));
  if (options.rope_scaling == RopeScaling::kFromFile) return OkStatus();
  *choice = {.kind = options.rope_scaling, .factor = std::max(1.0f, options.rope_factor)};
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

Status ReadEvictionMarks(const GgufFile& file, const ModelFamily& family,
                         Hyperparameters* hparams) {
  return ReadMarks(FamilyKeys(file, family), hparams);
}

Result<Hyperparameters> ReadHyperparameters(const GgufFile& file, const ModelFamily& family,
                                            const ModelOptions& options) {
  const FamilyKeys keys(file, family);
  EBB_RETURN_IF_ERROR(RefuseOtherArchitectures(keys));
  EBB_RETURN_IF_ERROR(RefuseSoftCaps(keys));
  Hyperparameters h;
  EBB_RETURN_IF_ERROR(keys.ReadSize("block_count", Need::kRequired, kMaxLayers, &h.num_layers));
  EBB_RETURN_IF_ERROR(keys.ReadSize("embedding_length", Need::kRequired, kMaxDim, &h.embed_dim));
  h.feed_forward_dim = 1;
  EBB_RETURN_IF_ERROR(
      keys.ReadCommonSize("feed_forward_length", kMaxDim, h.num_layers, &h.feed_forward_dim));
  EBB_RETURN_IF_ERROR(
      keys.ReadSize("context_length", Need::kRequired, kMaxContext, &h.trained_context));
  EBB_RETURN_IF_ERROR(
      keys.ReadPositive("attention.layer_norm_rms_epsilon", Need::kRequired, &h.norm_epsilon));
  EBB_RETURN_IF_ERROR(ReadHeads(keys, family, &h));
  EBB_RETURN_IF_ERROR(ReadWindows(keys, family, &h));
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
  if (scaling.kind == RopeScaling::kYarn && !h.windows.empty()) {
    return Unsupported("rope scaling yarn is not supported for layers with sliding windows");
  }
  ApplyRopeScaling(scaling, &h);
  return h;
}

}  // namespace ebb
