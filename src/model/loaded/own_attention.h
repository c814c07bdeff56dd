// Decides which models use ebb's own attention nodes for single tokens, by ggml backend. The same
// nodes read rows of T2 in the device's memory.
#ifndef EBB_MODEL_LOADED_OWN_ATTENTION_H_
#define EBB_MODEL_LOADED_OWN_ATTENTION_H_

#include <algorithm>
#include <string_view>

#include "ebb/device.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

// Returns whether the model uses ebb's own attention on this backend. backend: its name in ggml,
// such as "CUDA".
[[nodiscard]] inline bool TakesOwnAttention(const LoadedModel& model, std::string_view backend,
                                            DeviceAttention attention) {
  const Hyperparameters& hparams = model.hparams;
  if (attention != DeviceAttention::kAuto || !hparams.has_values) return false;
  if (backend == "CPU" || backend == "Sim") return true;
  const bool has_sinks = std::ranges::any_of(
      model.layers, [](const LayerWeights& layer) { return layer.sinks != nullptr; });
  constexpr int kHeadStep = 8, kMostHeadDim = 256;  // of the kernels
  return backend == "CUDA" && !has_sinks && hparams.attention_soft_cap == 0 &&
         hparams.head_dim % kHeadStep == 0 && hparams.head_dim <= kMostHeadDim;
}

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_OWN_ATTENTION_H_
