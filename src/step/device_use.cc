#include "src/step/device_use.h"

#include <algorithm>

namespace ebb {

LayerBytes DeviceUse::BytesOf(std::span<const SequenceStep> sequences, const AttentionShape& shape,
                              int layer) {
  LayerBytes bytes;
  const size_t row_bytes = 2 * shape.format.RowStride();
  for (const SequenceStep& sequence : sequences) {
    const SequenceCache& cache = *sequence.cache;
    bool any_in_t1 = false;
    for (int head = 0; head < cache.NumKvHeads(layer); ++head) {
      const size_t full = cache.View(layer, head).size();
      const size_t in_t1 = cache.NumRowsInT1(layer, head);
      bytes.t1_rows += in_t1 * row_bytes;
      bytes.t1_pages += cache.NumPagesInT1(layer, head) * shape.format.PageBytes();
      bytes.on_device += (full - in_t1) * row_bytes;
      if (shape.compressed.head_dim > 0) {
        bytes.on_device += cache.Compressed(layer, head).size() * shape.compressed.RowStride();
      }
      any_in_t1 |= in_t1 > 0;
    }
    if (!any_in_t1) continue;
    const size_t heads = size_t(shape.num_q_heads) * sequence.num_tokens;
    bytes.queries += heads * shape.format.head_dim * sizeof(float);
    bytes.states += heads * (shape.format.head_dim + 2) * sizeof(float);
  }
  return bytes;
}

T1Mode DeviceUse::Choose(std::span<const SequenceStep> sequences,
                         const AttentionShape& shape) const {
  if (options_.t1_mode != T1Mode::kAuto) return options_.t1_mode;
  // The other way is exact up to rounding only.
  if (!options_.allow_inexact) return T1Mode::kStream;
  const LayerBytes bytes = BytesOf(sequences, shape, 0);
  return ComputeSeconds(options_.rates, bytes, 1) < StreamSeconds(options_.rates, bytes, 1)
             ? T1Mode::kCompute
             : T1Mode::kStream;
}

void DeviceUse::LaunchRest(int layer, int num_passes) const {
  device_->Launch(DeviceQueue::kCompute,
                  {.what = "rest of the layer", .layer = layer, .num_layers = num_passes});
}

// The queries go to the host and the states come back while the device attends to its own rows.
// Their tensors lie in the host's memory here, so that their copies only take time.
void DeviceUse::LaunchAttention(std::span<const SequenceStep> sequences,
                                const AttentionShape& shape, int layer) const {
  const LayerBytes bytes = BytesOf(sequences, shape, layer);
  const bool in_place =
      std::ranges::any_of(sequences, [](const SequenceStep& s) { return s.cache->ReadsInPlace(); });
  const auto launch = [&](DeviceQueue queue, std::string_view what, size_t num_bytes) {
    return device_->Launch(queue, {.what = what, .layer = layer, .num_bytes = num_bytes});
  };
  if (!in_place || bytes.t1_rows == 0) {
    launch(DeviceQueue::kCompute, "attend", bytes.on_device + bytes.t1_rows);
    return;
  }
  // None of these waits is for a copy of bytes, which alone can fail.
  const auto after = [&](DeviceQueue queue, const DeviceEvent& event) {
    (void)device_->QueueWait(queue, event);
  };
  after(DeviceQueue::kToHost, device_->Record(DeviceQueue::kCompute));
  after(DeviceQueue::kHost, launch(DeviceQueue::kToHost, "queries", bytes.queries));
  after(DeviceQueue::kToDevice, launch(DeviceQueue::kHost, "attend to T1", bytes.t1_rows));
  const DeviceEvent states = launch(DeviceQueue::kToDevice, "states", bytes.states);
  launch(DeviceQueue::kCompute, "attend", bytes.on_device);
  after(DeviceQueue::kCompute, states);
}

Status DeviceUse::EndStep() const { return device_->Wait(device_->Record(DeviceQueue::kCompute)); }

}  // namespace ebb
