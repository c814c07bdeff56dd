#include "src/step/device/device_use.h"

#include <algorithm>

#include "src/model/loaded/own_attention.h"
#include "src/step/device/row_attention.h"

namespace ebb {

bool RunsRowAttention(const BackendDevice& device, const LoadedModel& model) {
  if (!TakesOwnAttention(model, device.BackendName(), device.attention())) return false;
  const Hyperparameters& hparams = model.hparams;
  return device.BackendName() != "CUDA" ||
         (CudaRowAttention() != nullptr && std::ranges::all_of(hparams.kv_heads, [&](int heads) {
            return CudaRowAttentionTakes(hparams.head_dim, hparams.num_q_heads / heads);
          }));
}

}  // namespace ebb
