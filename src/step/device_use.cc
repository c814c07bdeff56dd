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

}  // namespace ebb
