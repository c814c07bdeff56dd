#include "src/step/device/device_weights.h"

#include <fmt/format.h>

#include <cassert>
#include <map>
#include <string>

#include "src/model/library/library_model.h"

namespace ebb {

Result<std::unique_ptr<DeviceWeights>> DeviceWeights::Create(const LoadedModel& model,
                                                             BackendDevice* device) {
  if (!model.for_device) {
    return InvalidArgument(
        fmt::format("device {}: the model was loaded for the processor; load it for a device "
                    "(ModelOptions::for_device)",
                    device->name()));
  }
  std::unique_ptr<DeviceWeights> weights(new DeviceWeights(model));
  EBB_RETURN_IF_ERROR(device->Call([&] { return weights->Copy(device); }));
  return weights;
}

Status DeviceWeights::Copy(BackendDevice* device) {
  on_device_.hparams = host_.hparams;
  on_device_.shape = host_.shape;
  on_device_.layers = host_.layers;
  on_device_.library = host_.library;
  // Copies a tensor once, even if several members of the model point to it.
  std::map<ggml_tensor*, ggml_tensor*> copies;
  const auto for_each = [&](const auto& visit) {
    for (LayerWeights& layer : on_device_.layers) {
      for (ggml_tensor* LayerWeights::*const weight : kLayerWeights) {
        if (layer.*weight != nullptr) visit(layer.*weight);
      }
    }
  };
  for_each([&](ggml_tensor*& weight) { copies[weight] = nullptr; });
  for (ggml_tensor* weight : host_.library->weights_read()) copies[weight] = nullptr;
  context_.reset(ggml_init({.mem_size = (copies.size() + 1) * ggml_tensor_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true}));
  if (context_ == nullptr) return OutOfMemory("no memory for a model's tensors");
  for (auto& [on_host, copy] : copies) copy = ggml_dup_tensor(context_.get(), on_host);
  buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), device->backend()));
  if (buffer_ == nullptr) {
    return OutOfMemory(
        fmt::format("device {} has no memory for the model's weights", device->name()));
  }
  ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (const auto& [on_host, copy] : copies) {
    ggml_backend_tensor_set(copy, on_host->data, 0, ggml_nbytes(on_host));
  }
  for_each([&](ggml_tensor*& weight) { weight = copies.at(weight); });
  on_device_.library_copies.insert(copies.begin(), copies.end());
  return OkStatus();
}

size_t DeviceWeights::num_bytes() const { return ggml_backend_buffer_get_size(buffer_.get()); }

}  // namespace ebb
