// DeviceSignals copies the signals of a step (attention mass, keys, queries, hidden states) from a
// device to the SignalBuffers of the step's sequences.
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
#include "src/step/work/signal_buffers.h"
#include "src/step/work/step_work.h"

namespace ebb {

class DeviceSignals {
 public:
  // Makes signals of `model` copyable from `device`. REQUIRES: both outlive this.
  DeviceSignals(const LoadedModel& model, BackendDevice* device,
                HostAttention::OnThreads on_threads)
      : model_(model), device_(device), on_threads_(std::move(on_threads)) {}

  // Waits until the device has computed the step, and copies its signals.
  void Fetch(const StepWork& work, const DeviceGraph& graph);
  void Leak();  // called after the device was lost: frees nothing

 private:
  // Fetched holds a step's outputs that were copied to the host, by layer.
  struct Fetched {
    using Spans = std::vector<std::span<const float>>;
    Spans q, k, v, k_before_rope, hidden, eviction_channels;
  };
  // ReadBuffer is host memory into which a tensor is copied; the next step uses it again.
  struct ReadBuffer {
    BackendDevice::BufferHandle pinned;
    std::vector<float> plain;
    float* data = nullptr;
    size_t size = 0;
  };

  // Begins to copy a tensor to a buffer of `read_`, and returns the buffer's contents, valid after
  // the device was waited for. Many copies may be under way.
  std::span<const float> Read(const ggml_tensor* tensor);
  [[nodiscard]] ReadBuffer MakeReadBuffer(size_t size) const;
  // Returns the number of the attention that stores a layer's rows, which is the first to read
  // them.
  [[nodiscard]] int StoringAttention(int layer) const;
  // Copies all signals but mass to `signals`.
  void CopySignals(const SequenceStep& sequence, const DeviceGraph& graph, const Fetched& fetched,
                   SignalBuffers* signals) const;
  // Adds the mass of the device's rows, of all layers, to the sequence's signals.
  void TakeMass(const SequenceStep& sequence, const DeviceGraph& graph, size_t index,
                std::span<const float> mass_of_layers) const;

  const LoadedModel& model_;
  BackendDevice* const device_;
  const HostAttention::OnThreads on_threads_;
  std::vector<ReadBuffer> read_;
  size_t num_read_ = 0;  // buffers used in this step
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_SIGNALS_H_
