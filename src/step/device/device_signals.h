// DeviceSignals copies the signals of a step, mass among them, from a device to the SignalBuffers
// of the step's sequences.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_SIGNALS_H_
#define EBB_STEP_DEVICE_DEVICE_SIGNALS_H_

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "src/device/backend_device.h"
#include "src/step/device/device_graphs.h"
#include "src/step/device/host_attention.h"
#include "src/step/signal_buffers.h"
#include "src/step/step_work.h"

namespace ebb {

class DeviceSignals {
 public:
  // Copies signals of `model` from `device`. REQUIRES: both outlive this.
  DeviceSignals(const LoadedModel& model, BackendDevice* device,
                HostAttention::OnThreads on_threads)
      : model_(model), device_(device), on_threads_(std::move(on_threads)) {}

  // Waits for the step and copies its signals.
  void Fetch(const StepWork& work, const DeviceGraph& graph);
  void Leak();  // the device was lost

 private:
  // Fetched has the outputs of a step that have come to the host, by layer.
  struct Fetched {
    using Spans = std::vector<std::span<const float>>;
    Spans q, k, v, k_before_rope, hidden, eviction_channels;
  };
  // ReadBuffer is memory for a tensor that steps read, which stays for the next step.
  struct ReadBuffer {
    BackendDevice::BufferHandle pinned;
    std::vector<float> plain;
    float* data = nullptr;
    size_t size = 0;
  };

  // Begins to copy a tensor into one of `read_`, so that many copies may be under way.
  std::span<const float> Read(const ggml_tensor* tensor);
  [[nodiscard]] ReadBuffer MakeReadBuffer(size_t size) const;
  // Returns the attention that stores the rows of a layer: the first that reads them.
  [[nodiscard]] int StoringAttention(int layer) const;
  // Copies all signals but mass.
  void CopySignals(const SequenceStep& sequence, const DeviceGraph& graph, const Fetched& fetched,
                   SignalBuffers* signals) const;
  // Adds the mass of the rows on the device, of all layers.
  void TakeMass(const SequenceStep& sequence, const DeviceGraph& graph, size_t index,
                std::span<const float> mass_of_layers) const;

  const LoadedModel& model_;
  BackendDevice* const device_;
  const HostAttention::OnThreads on_threads_;
  std::vector<ReadBuffer> read_;
  size_t num_read_ = 0;  // in this step
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_SIGNALS_H_
