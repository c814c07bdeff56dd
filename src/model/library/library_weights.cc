#include "src/model/library/library_weights.h"

#include <fmt/format.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/model/loaded/product_layout.h"

namespace ebb {
namespace {

struct Placed {
  ggml_tensor* tensor = nullptr;
  const GgufTensor* source = nullptr;
};

// Placement lists the tensors of a model by the memory that they get.
struct Placement {
  std::map<ggml_backend_buffer_type_t, std::vector<Placed>> copied;  // by the layout
  std::vector<Placed> matrices, lookups;                             // that stay in the mapped file
  std::vector<ggml_tensor*> views;                                   // of other tensors
};

bool WidensTo32Bits(WeightMode mode, ggml_type type) {
  return mode == WeightMode::kDequantize && type != GGML_TYPE_F32 &&
         ggml_get_type_traits(type)->to_float != nullptr;
}

// Changes the type of a tensor that has no memory yet to F32.
void WidenTensor(ggml_tensor* tensor) {
  tensor->type = GGML_TYPE_F32;
  tensor->nb[0] = sizeof(float);
  for (int i = 1; i < GGML_MAX_DIMS; ++i) tensor->nb[i] = tensor->nb[i - 1] * tensor->ne[i - 1];
}

// Chooses a place for each tensor, and removes libllama's empty buffers from the tensors.
Result<Placement> Plan(const GgufFile& file, WeightMode mode, bool fits_memory,
                       const llama_model& model) {
  Placement placement;
  const bool copies = fits_memory && RunsFasterFromCopy(file);
  const ggml_backend_buffer_type_t plain = ggml_backend_cpu_buffer_type();
  for (const auto& [name, tensor] : model.tensors_by_name) {
    if (tensor->view_src != nullptr) {
      placement.views.push_back(tensor);
      continue;
    }
    const GgufTensor* source = file.FindTensor(name);
    if (source == nullptr || source->data.size() != ggml_nbytes(tensor)) {
      return Corrupt(
          fmt::format("the file lacks tensor {} of {} bytes", name, ggml_nbytes(tensor)));
    }
    ggml_backend_buffer_type_t layout = ggml_backend_buffer_get_type(tensor->buffer);
    tensor->buffer = nullptr;
    const bool widens = WidensTo32Bits(mode, tensor->type);
    if (widens) WidenTensor(tensor);
    if (widens || !fits_memory || ggml_backend_buft_is_host(layout)) layout = plain;
    // model.tok_embd may be that of a head's target.
    const bool is_table = name == "token_embd.weight" && tensor != model.output;
    const bool is_lookup = is_table || tensor == model.per_layer_tok_embd;
    const bool is_matrix = tensor->ne[1] > 1 && !is_lookup;
    const bool is_copied = widens || layout != plain || (copies && is_matrix);
    std::vector<Placed>& group = is_copied   ? placement.copied[layout]
                                 : is_lookup ? placement.lookups
                                             : placement.matrices;
    group.push_back({.tensor = tensor, .source = source});
  }
  return placement;
}

// Sorts the tensors so that members of a group are adjacent, and within a group those of one type.
void GatherGroups(const WeightGroups& groups, std::vector<Placed>* all) {
  std::map<const ggml_tensor*, size_t> group_of;
  for (size_t i = 0; i < groups.size(); ++i) {
    for (const ggml_tensor* weight : groups[i]) group_of[weight] = i;
  }
  using Key = std::pair<size_t, int>;  // the place of the group's first member, the type
  std::map<size_t, size_t> first_places;
  std::map<const ggml_tensor*, Key> keys;
  for (size_t i = 0; i < all->size(); ++i) {
    const ggml_tensor* tensor = (*all)[i].tensor;
    const auto group = group_of.find(tensor);
    keys[tensor] =
        group == group_of.end()
            ? Key(i, 0)
            : Key(first_places.try_emplace(group->second, i).first->second, tensor->type);
  }
  std::ranges::stable_sort(*all, {}, [&](const Placed& placed) { return keys.at(placed.tensor); });
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

Result<WeightSizes> PlaceLibraryWeights(const GgufFile& file, WeightMode mode, bool for_device,
                                        const WeightGroups& groups, llama_model* model,
                                        WeightBuffers* buffers) {
  // Weights that do not fit into memory stay in the mapped file, which the system pages in and out:
  // each token needs only a part of a mixture of experts.
  const bool fits_memory = !for_device && FitsMemory(file);
  const bool reads = mode != WeightMode::kUnread;
  std::future<void> prefetch;  // ends before this function does
  if (fits_memory && reads) prefetch = file.Prefetch();
  EBB_ASSIGN_OR_RETURN(Placement placement, Plan(file, mode, fits_memory, *model));
  WeightSizes sizes;
  // Copies weights before the others are mapped, and drops their sources from the mapping, so that
  // resident memory has no peak.
  std::vector<Placed> copied;
  for (auto& [layout, group] : placement.copied) {
    GatherGroups(groups, &group);
    std::vector<ggml_tensor*> tensors;
    for (const Placed& placed : group) tensors.push_back(placed.tensor);
    EBB_ASSIGN_OR_RETURN(const uint64_t bytes, AllocateWeights(layout, tensors, buffers));
    sizes.weight_bytes += bytes;
    copied.insert(copied.end(), group.begin(), group.end());
  }
  // Copies in the order of the file, which the prefetching thread reads at the same time.
  std::ranges::sort(copied, std::less<>(),
                    [](const Placed& placed) { return placed.source->data.data(); });
  if (reads) FillWeights(copied.size(), [&](size_t index) { Fill(copied[index], file); });
  const MappedBuffers parts(file, buffers);
  for (const Placed& placed : placement.matrices) {
    parts.Place(placed.tensor, placed.source->data);
    sizes.weight_bytes += placed.source->data.size();
    if (fits_memory && reads && placed.tensor->ne[1] > 1) file.Populate(placed.source->data);
  }
  for (const Placed& placed : placement.lookups) {
    parts.Place(placed.tensor, placed.source->data);
    sizes.lookup_bytes += placed.source->data.size();
  }
  for (ggml_tensor* view : placement.views) {
    view->buffer = nullptr;
    ggml_backend_view_init(view);
  }
  return sizes;
}

JoinedWeights JoinWeights(const WeightGroups& groups, ggml_context* ctx) {
  JoinedWeights joined;
  const auto bytes = [](const ggml_tensor* weight) {
    return ggml_backend_buft_get_alloc_size(ggml_backend_buffer_get_type(weight->buffer), weight);
  };
  const auto follows = [&](const ggml_tensor* a, const ggml_tensor* b) {
    return b->buffer == a->buffer && b->type == a->type && b->ne[0] == a->ne[0] &&
           b->data == static_cast<const std::byte*>(a->data) + bytes(a);
  };
  for (std::vector<ggml_tensor*> group : groups) {
    std::erase_if(group, [](const ggml_tensor* weight) {
      // ggml multiplies floats by other kernels unless there is a multiple of 4 rows. A joined
      // weight would then round otherwise than its parts, which steps of several tokens multiply.
      const bool rounds_alike = ggml_is_quantized(weight->type) || weight->ne[1] % 4 == 0;
      return weight->buffer == nullptr || weight->view_src != nullptr || weight->ne[2] != 1 ||
             !rounds_alike;
    });
    std::ranges::sort(group, std::less<>(), &ggml_tensor::data);
    for (auto begin = group.begin(); begin != group.end();) {
      auto end = std::next(begin);
      while (end != group.end() && follows(*std::prev(end), *end)) ++end;
      const std::span<ggml_tensor* const> parts(begin, end);
      begin = end;
      if (parts.size() == 1) continue;
      const ggml_tensor* const first = parts.front();
      int64_t num_rows = 0;
      size_t num_bytes = 0;
      for (const ggml_tensor* part : parts) {
        num_rows += part->ne[1];
        num_bytes += bytes(part);
      }
      ggml_tensor* const all = ggml_new_tensor_2d(ctx, first->type, first->ne[0], num_rows);
      ggml_set_name(all, first->name);
      const auto type = ggml_backend_buffer_get_type(first->buffer);
      if (ggml_backend_buft_get_alloc_size(type, all) != num_bytes) continue;
      ggml_backend_tensor_alloc(first->buffer, all, first->data);
      int64_t row = 0;
      for (const ggml_tensor* part : parts) {
        joined[part] = {.joined = all, .first_row = row};
        row += part->ne[1];
      }
    }
  }
  return joined;
}

WeightScales FindUnreadScales(const llama_model& model, std::span<ggml_tensor* const> read) {
  std::map<std::string_view, ggml_tensor*> by_name;
  for (const auto& [name, tensor] : model.tensors_by_name) by_name[name] = tensor;
  constexpr std::string_view kScale = ".scale";
  WeightScales scales;
  for (const auto& [name, scale] : by_name) {
    if (!name.ends_with(kScale) || std::ranges::find(read, scale) != read.end()) continue;
    const std::string stem(name.substr(0, name.size() - kScale.size()));
    const auto weight = by_name.find(stem + ".weight");
    if (weight == by_name.end() || weight->second->type != GGML_TYPE_NVFP4) continue;
    scales[weight->second] = scale;
  }
  return scales;
}

}  // namespace ebb
