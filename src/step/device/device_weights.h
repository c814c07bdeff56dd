// A model's weights in the memory of a device that a backend of ggml computes on.
#ifndef EBB_STEP_DEVICE_DEVICE_WEIGHTS_H_
#define EBB_STEP_DEVICE_DEVICE_WEIGHTS_H_

#include <memory>

#include "ebb/status.h"
#include "src/base/ggml_deleter.h"
#include "src/base/sanitizers.h"
#include "src/device/backend_device.h"
#include "src/model/loaded_model.h"

namespace ebb {

class DeviceWeights {
 public:
  // Copies all weights but tables whose rows are looked up on the host: of embeddings. Errors:
  // InvalidArgument when the model was loaded for the processor, whose layouts no device knows;
  // OutOfMemory. REQUIRES: model and device outlive this.
  static Result<std::unique_ptr<DeviceWeights>> Create(const LoadedModel& model,
                                                       BackendDevice* device);

  // The model with its tensors on the device.
  [[nodiscard]] const LoadedModel& model() const { return on_device_; }
  [[nodiscard]] size_t num_bytes() const;
  // For a device that was lost, whose memory cannot be freed.
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
