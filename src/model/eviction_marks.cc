#include "src/model/eviction_marks.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/model/loaded/product_layout.h"
#include "src/model/loaded/weights.h"

namespace ebb {
namespace {

using Need = GgufFile::Need;

constexpr uint32_t kMaxWindow = 1u << 30;
constexpr std::string_view kTensorName = ".attn_dms_alpha";  // a part of every tensor's name

// MarkKeys reads the keys of a family's marks: "window" is "llama.attention.dms.window" in the
// file.
class MarkKeys {
 public:
  MarkKeys(const GgufFile& file, std::string_view family) : file_(file), family_(family) {}

  [[nodiscard]] std::string Name(std::string_view key) const {
    return fmt::format("{}.attention.dms.{}", family_, key);
  }
  template <typename T>
  Status Read(std::string_view key, T* value) const {
    return file_.Read(Name(key), Need::kOptional, value);
  }
  // Returns Corrupt, naming the key and its value.
  template <typename T>
  [[nodiscard]] Status Refuse(std::string_view key, T value, std::string_view expected) const {
    return Corrupt(fmt::format("{} is {}; expected {}", Name(key), value, expected));
  }

 private:
  const GgufFile& file_;
  const std::string_view family_;
};

Status ReadLayout(const MarkKeys& keys, EvictionLayout* layout) {
  std::string name;
  EBB_RETURN_IF_ERROR(keys.Read("layout", &name));
  if (name.empty()) return OkStatus();
  if (name == "query_last_channel") {
    *layout = EvictionLayout::kQueryLastChannel;
  } else if (name == "adapter") {
    *layout = EvictionLayout::kAdapter;
  } else {
    // The logits are part of the model's computation, so a model with an unknown layout cannot be
    // run.
    return Unsupported(fmt::format("{} is \"{}\"; supported are query_last_channel and adapter",
                                   keys.Name("layout"), name));
  }
  return OkStatus();
}

Status ReadWindow(const MarkKeys& keys, Hyperparameters* h) {
  uint32_t window = 512;  // of the released models
  EBB_RETURN_IF_ERROR(keys.Read("window", &window));
  if (window < 1 || window > kMaxWindow) {
    return keys.Refuse("window", window, fmt::format("1 to {}", kMaxWindow));
  }
  auto shift = static_cast<uint32_t>(h->eviction_shift);
  EBB_RETURN_IF_ERROR(keys.Read("shift", &shift));
  if (shift > window)
    return keys.Refuse("shift", shift, fmt::format("0 to the window, {}", window));
  h->eviction_window = static_cast<int>(window);
  h->eviction_shift = static_cast<int>(shift);
  return OkStatus();
}

// Reads a number that is only shown to people. A whole number may be stored as an integer.
Status ReadTrainedCompression(const MarkKeys& keys, float* compression) {
  const Status as_number = keys.Read("cr", compression);
  if (!as_number.ok()) {
    uint32_t whole = 0;
    if (!keys.Read("cr", &whole).ok()) return as_number;
    *compression = static_cast<float>(whole);
  }
  // 0 means that the file does not say.
  if (*compression == 0 || (std::isfinite(*compression) && *compression >= 1)) return OkStatus();
  return keys.Refuse("cr", *compression, "1 or more");
}

// MarkWeights describes the weights of all layers' marks, and fills them with copies from the file.
class MarkWeights {
 public:
  MarkWeights(const GgufFile& file, WeightMode mode, LoadedModel* model)
      : file_(file), mode_(mode), model_(*model), h_(model->hparams) {
    if (!model->for_device) packed_ = PackedBufferTypes();
  }

  Status Load() {
    WeightBuffers* const buffers = model_.buffers.get();
    buffers->context.reset(ggml_init({.mem_size = 2 * h_.num_layers * ggml_tensor_overhead(),
                                      .mem_buffer = nullptr,
                                      .no_alloc = true}));
    if (buffers->context == nullptr) return OutOfMemory("no memory for the weights of marks");
    context_ = buffers->context.get();
    if (h_.eviction_layout == EvictionLayout::kAdapter) {
      EBB_RETURN_IF_ERROR(DescribeTensors());
    } else {
      DescribeKeptChannels();
    }
    for (const auto& [layout, tensors] : tensors_) {
      EBB_ASSIGN_OR_RETURN(const uint64_t bytes, AllocateWeights(layout, tensors, buffers));
      model_.weight_bytes += bytes;
    }
    for (const auto& [tensor, source] : sources_) Fill(tensor, *source);
    if (h_.eviction_layout == EvictionLayout::kQueryLastChannel) FillKeptChannels();
    return OkStatus();
  }

 private:
  // Describes the tensors of EvictionLayout::kAdapter.
  Status DescribeTensors() {
    for (int i = 0; i < h_.num_layers; ++i) {
      LayerWeights& layer = model_.layers[i];
      const auto [norm, matrix] = MarkTensorNames(i);
      EBB_ASSIGN_OR_RETURN(layer.alpha_norm, Describe(norm, 1));
      EBB_ASSIGN_OR_RETURN(layer.alpha, Describe(matrix, h_.kv_heads[i]));
    }
    return OkStatus();
  }
  // Describes a tensor [embed_dim, rows], in the layout that products use on this processor.
  Result<ggml_tensor*> Describe(const std::string& name, int rows) {
    EBB_ASSIGN_OR_RETURN(const GgufTensor* source, Find(name, rows));
    const bool widens = mode_ == WeightMode::kDequantize && source->type != GGML_TYPE_F32;
    const ggml_type type = widens ? GGML_TYPE_F32 : source->type;
    ggml_tensor* const tensor =
        Add(type, h_.embed_dim, rows, name,
            widens ? nullptr : PackedTypeOf(packed_, type, h_.embed_dim, rows));
    sources_.emplace_back(tensor, source);
    return tensor;
  }
  // Describes the masks of EvictionLayout::kQueryLastChannel, which layers with equally many kv
  // heads share.
  void DescribeKeptChannels() {
    std::map<int, ggml_tensor*> by_kv_heads;
    for (int i = 0; i < h_.num_layers; ++i) {
      ggml_tensor*& kept = by_kv_heads[h_.kv_heads[i]];
      if (kept == nullptr) {
        kept = Add(GGML_TYPE_F32, h_.head_dim, h_.num_q_heads, "kept_channels", nullptr);
      }
      model_.layers[i].kept_channels = kept;
    }
  }
  ggml_tensor* Add(ggml_type type, int64_t columns, int64_t rows, const std::string& name,
                   ggml_backend_buffer_type_t layout) {
    ggml_tensor* const tensor = ggml_new_tensor_2d(context_, type, columns, rows);
    ggml_set_name(tensor, name.c_str());
    tensors_[layout == nullptr ? ggml_backend_cpu_buffer_type() : layout].push_back(tensor);
    return tensor;
  }

  [[nodiscard]] Result<const GgufTensor*> Find(const std::string& name, int rows) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) return Corrupt(fmt::format("the file lacks tensor {}", name));
    if (tensor->dims != std::array<int64_t, GGML_MAX_DIMS>{h_.embed_dim, rows, 1, 1}) {
      return Corrupt(fmt::format("tensor {} has shape {}, expected [{}, {}]", name,
                                 tensor->ShapeString(), h_.embed_dim, rows));
    }
    const char* const type = ggml_type_name(tensor->type);
    if (name.ends_with("_norm.weight") && tensor->type != GGML_TYPE_F32) {
      return Unsupported(fmt::format("tensor {} is of type {}, expected f32", name, type));
    }
    if (CanMultiply(tensor->type)) return tensor;
    return Unsupported(fmt::format("tensor {} is of type {}, which no product takes", name,
                                   type == nullptr ? "unknown" : type));
  }

  static void Fill(ggml_tensor* tensor, const GgufTensor& source) {
    if (source.type == tensor->type) {
      ggml_backend_tensor_set(tensor, source.data.data(), 0, source.data.size());
    } else {
      ggml_get_type_traits(source.type)
          ->to_float(source.data.data(), static_cast<float*>(tensor->data), ggml_nelements(tensor));
    }
  }
  void FillKeptChannels() const {
    for (int i = 0; i < h_.num_layers; ++i) {
      auto* const kept = static_cast<float*>(model_.layers[i].kept_channels->data);
      std::fill_n(kept, h_.head_dim * h_.num_q_heads, 1.0f);
      const int heads_per_group = h_.num_q_heads / h_.kv_heads[i];
      for (int head = 0; head < h_.num_q_heads; head += heads_per_group) {
        kept[(head + 1) * h_.head_dim - 1] = 0;
      }
    }
  }

  const GgufFile& file_;
  const WeightMode mode_;
  LoadedModel& model_;
  const Hyperparameters& h_;
  ggml_context* context_ = nullptr;
  std::vector<ggml_backend_buffer_type_t> packed_;
  std::map<ggml_backend_buffer_type_t, std::vector<ggml_tensor*>> tensors_;  // by the layout
  std::vector<std::pair<ggml_tensor*, const GgufTensor*>> sources_;
};

}  // namespace

std::array<std::string, 2> MarkTensorNames(int layer) {
  const std::string stem = fmt::format("blk.{}{}", layer, kTensorName);
  return {stem + "_norm.weight", stem + ".weight"};
}

Status ReadEvictionMarks(const GgufFile& file, std::string_view family, Hyperparameters* hparams) {
  Hyperparameters& h = *hparams;
  const MarkKeys keys(file, family);
  EBB_RETURN_IF_ERROR(ReadLayout(keys, &h.eviction_layout));
  if (h.eviction_layout == EvictionLayout::kNone) return OkStatus();
  EBB_RETURN_IF_ERROR(ReadWindow(keys, &h));
  // Uses the constants of the released models as defaults.
  h.eviction_scale = 100;
  h.eviction_offset = 5;
  EBB_RETURN_IF_ERROR(keys.Read("alpha_scale", &h.eviction_scale));
  if (!std::isfinite(h.eviction_scale) || h.eviction_scale <= 0) {
    return keys.Refuse("alpha_scale", h.eviction_scale, "a number above 0");
  }
  EBB_RETURN_IF_ERROR(keys.Read("alpha_offset", &h.eviction_offset));
  if (!std::isfinite(h.eviction_offset)) {
    return keys.Refuse("alpha_offset", h.eviction_offset, "a number");
  }
  return ReadTrainedCompression(keys, &h.trained_compression);
}

Status LoadMarkWeights(const GgufFile& file, WeightMode mode, LoadedModel* model) {
  const EvictionLayout layout = model->hparams.eviction_layout;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool marks = tensor.name.find(kTensorName) != std::string_view::npos;
    if (!marks || layout == EvictionLayout::kAdapter) continue;
    return Unsupported(fmt::format("the file has a tensor {}, but {} is not \"adapter\"",
                                   tensor.name, MarkKeys(file, model->family_name).Name("layout")));
  }
  if (layout == EvictionLayout::kNone) return OkStatus();
  return MarkWeights(file, mode, model).Load();
}

}  // namespace ebb
