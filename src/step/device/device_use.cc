#include "src/step/device/device_use.h"

#include <algorithm>

#include "src/model/own_attention.h"
#include "src/step/device/row_attention.h"

namespace ebb {

namespace {

// All layers read about as much as the first. All queries of a sequence read its rows once.
T1Bytes BytesOfFirstLayer(std::span<const SequenceStep> sequences, const AttentionShape& shape) {
  T1Bytes bytes;
  const size_t row_bytes = shape.format.RowBytes();
  for (const SequenceStep& sequence : sequences) {
    const SequenceCache& cache = *sequence.cache;
    bool any_in_t1 = false;
    for (int head = 0; head < cache.layout().NumKvHeads(0); ++head) {
      const size_t in_t1 = cache.views().CountsOf(0, head).rows_in_t1;
      bytes.rows += in_t1 * row_bytes;
      bytes.pages += cache.views().CountsOf(0, head).pages_in_t1 * shape.format.PageBytes();
      any_in_t1 |= in_t1 > 0;
    }
    if (!any_in_t1) continue;
    const size_t heads = size_t(shape.num_q_heads) * sequence.num_tokens();
    bytes.queries_and_states += heads * (2 * shape.format.head_dim + 1) * sizeof(float);
  }
  return bytes;
}

}  // namespace

bool RunsRowAttention(const BackendDevice& device, const LoadedModel& model) {
  if (!TakesOwnAttention(model, device.BackendName(), device.attention())) return false;
  const Hyperparameters& hparams = model.hparams;
  return device.BackendName() != "CUDA" ||
         (CudaRowAttention() != nullptr && std::ranges::all_of(hparams.kv_heads, [&](int heads) {
            return CudaRowAttentionTakes(hparams.head_dim, hparams.num_q_heads / heads);
          }));
}

T1Mode DeviceUse::Choose(std::span<const SequenceStep> sequences,
                         const AttentionShape& shape) const {
  if (options_.t1_mode != T1Mode::kAuto) return options_.t1_mode;
  // The other way is exact up to rounding only.
  if (!options_.allow_inexact) return T1Mode::kStream;
  const T1Bytes bytes = BytesOfFirstLayer(sequences, shape);
  return ComputeSeconds(rates_, bytes) < StreamSeconds(rates_, bytes) ? T1Mode::kCompute
                                                                      : T1Mode::kStream;
}

}  // namespace ebb
