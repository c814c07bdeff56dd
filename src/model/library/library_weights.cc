#include "src/model/library/library_weights.h"

#include <fmt/format.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "src/model/product_layout.h"

namespace ebb {
namespace {

struct Placed {
  ggml_tensor* tensor = nullptr;
  const GgufTensor* source = nullptr;
};

bool WidensTo32Bits(WeightMode mode, ggml_type type) {
  return mode == WeightMode::kDequantize && type != GGML_TYPE_F32 &&
         ggml_get_type_traits(type)->to_float != nullptr;
}

// Changes the type of a tensor that has no memory yet.
void WidenTensor(ggml_tensor* tensor) {
  tensor->type = GGML_TYPE_F32;
  tensor->nb[0] = sizeof(float);
  for (int i = 1; i < GGML_MAX_DIMS; ++i) tensor->nb[i] = tensor->nb[i - 1] * tensor->ne[i - 1];
}

void Fill(const Placed& placed, const GgufFile& file) {
  const std::span<const std::byte> data = placed.source->data;
  if (placed.source->type != placed.tensor->type) {
    ggml_get_type_traits(placed.source->type)
        ->to_float(data.data(), static_cast<float*>(placed.tensor->data),
                   ggml_nelements(placed.tensor));
  } else {
    ggml_backend_tensor_set(placed.tensor, data.data(), 0, data.size());
  }
  file.Drop(data);
}

}  // namespace

Result<WeightSizes> PlaceLibraryWeights(const GgufFile& file, WeightMode mode, llama_model* model,
                                        WeightBuffers* buffers) {
  WeightSizes sizes;
  std::vector<Placed> mapped;
  std::map<ggml_backend_buffer_type_t, std::vector<Placed>> copied;  // by the layout
  std::vector<ggml_tensor*> views;
  // Weights that memory does not hold stay in the mapped file, which the system pages in and out:
  // of a mixture of experts each token needs a part.
  const bool fits_memory = FitsMemory(file);
  const bool use_huge_pages = fits_memory && RunsFasterFromHugePages(file);
  const ggml_backend_buffer_type_t plain = ggml_backend_cpu_buffer_type();
  for (const auto& [name, tensor] : model->tensors_by_name) {
    if (tensor->view_src != nullptr) {
      views.push_back(tensor);
      continue;
    }
    const GgufTensor* source = file.FindTensor(name);
    if (source == nullptr || source->data.size() != ggml_nbytes(tensor)) {
      return Corrupt(
          fmt::format("the file lacks tensor {} of {} bytes", name, ggml_nbytes(tensor)));
    }
    ggml_backend_buffer_type_t layout = ggml_backend_buffer_get_type(tensor->buffer);
    tensor->buffer = nullptr;  // libllama's empty one
    const bool widens = WidensTo32Bits(mode, tensor->type);
    if (widens) WidenTensor(tensor);
    if (widens || !fits_memory || ggml_backend_buft_is_host(layout)) layout = plain;
    const bool is_lookup = (tensor == model->tok_embd && tensor != model->output) ||
                           tensor == model->per_layer_tok_embd;
    const bool is_matrix = tensor->ne[1] > 1 && !is_lookup;
    if (widens || layout != plain || (use_huge_pages && is_matrix)) {
      copied[layout].push_back({.tensor = tensor, .source = source});
      continue;
    }
    mapped.push_back({.tensor = tensor, .source = source});
    (is_lookup ? sizes.lookup_bytes : sizes.weight_bytes) += source->data.size();
  }
  // Copies first: their sources leave the mapping again, so that resident memory has no peak.
  for (const auto& [layout, tensors] : copied) {
    const size_t alignment = ggml_backend_buft_get_alignment(layout);
    const auto padded_size = [&](const Placed& placed) {
      const size_t size = ggml_backend_buft_get_alloc_size(layout, placed.tensor);
      return (size + alignment - 1) / alignment * alignment;
    };
    size_t bytes = 0;
    for (const Placed& placed : tensors) bytes += padded_size(placed);
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(layout, bytes);
    if (buffer == nullptr) {
      return ResourceExhausted(fmt::format("no memory for {} bytes of weights", bytes));
    }
    buffers->buffers.emplace_back(buffer);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    AdviseHugePages(buffer);
    sizes.weight_bytes += bytes;
    auto* address = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer));
    for (const Placed& placed : tensors) {
      ggml_backend_tensor_alloc(buffer, placed.tensor, address);
      address += padded_size(placed);
      Fill(placed, file);
    }
  }
  const MappedBuffers parts(file, buffers);
  for (const Placed& placed : mapped) {
    parts.Place(placed.tensor, placed.source->data);
    if (placed.tensor->ne[1] > 1 && placed.tensor != model->tok_embd && fits_memory) {
      file.Populate(placed.source->data);
    }
  }
  for (ggml_tensor* view : views) {
    view->buffer = nullptr;
    ggml_backend_view_init(view);
  }
  return sizes;
}

}  // namespace ebb
