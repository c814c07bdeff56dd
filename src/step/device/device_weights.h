// DeviceWeights holds a model's weights in the memory of a device.
#ifndef EBB_STEP_DEVICE_DEVICE_WEIGHTS_H_
#define EBB_STEP_DEVICE_DEVICE_WEIGHTS_H_

#include <memory>

#include "ebb/status.h"
#include "src/base/ggml_deleter.h"
#include "src/base/sanitizers.h"
#include "src/device/backend_device.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

class DeviceWeights {
 public:
  // Copies all weights to the device but token embeddings, whose rows are looked up on the host.
  // Errors: InvalidArgument if the model was loaded in the processor's tensor layouts; OutOfMemory.
  // REQUIRES: model and device outlive this.
  static Result<std::unique_ptr<DeviceWeights>> Create(const LoadedModel& model,
                                                       BackendDevice* device);

  // Returns a copy of the model's description whose tensors lie on the device.
  [[nodiscard]] const LoadedModel& model() const { return on_device_; }
  [[nodiscard]] size_t num_bytes() const;
  // Leaks the memory, because freeing fails after the device was lost.
  void Leak() { ebb::Leak(&buffer_); }

 private:
  explicit DeviceWeights(const LoadedModel& model) : host_(model) {}
  Status Copy(BackendDevice* device);

  const LoadedModel& host_;
  LoadedModel on_device_;
  std::unique_ptr<ggml_context, GgmlDeleter> context_;
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> buffer_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_WEIGHTS_H_
