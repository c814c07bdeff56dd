#include "src/sequence/draft_options.h"

#include <algorithm>
#include <utility>

#include "src/model/loaded/loaded_model.h"
#include "src/rows/arena.h"

namespace ebb {

EngineOptions TakeDraftOptions(const Model& model, const Model& draft_model,
                               EngineOptions* options) {
  EngineOptions draft = {.threads = options->threads, .prefill_chunk = options->prefill_chunk};
  if (!draft_model.loaded().hparams.has_cache) return draft;
  draft.metrics_folder = options->metrics_folder;
  if (const auto type = options->draft_compressed_type) draft.tiers = CompressedCache(*type).engine;
  const auto row_bytes = [](const ModelShape& shape) {
    return static_cast<double>(shape.NumStreams()) * shape.head_dim;
  };
  const bool is_mtp = options->draft_model == nullptr;
  const double of_draft = row_bytes(draft_model.shape()), of_model = row_bytes(model.shape());
  const double part = of_draft / (is_mtp ? of_model : of_draft + of_model);
  const auto divide = [&](uint64_t* cap) {
    auto taken = static_cast<uint64_t>(static_cast<double>(*cap) * part);
    if (is_mtp && *cap > 0) taken = std::max(taken, uint64_t{kExtentBytes});
    if (!is_mtp) *cap -= taken;
    draft.kv_cap_bytes += taken;
  };
  divide(&options->kv_cap_bytes);
  if (options->tiers.has_value()) divide(&options->tiers->t0_cap_bytes);
  if (draft.tiers.has_value()) {
    draft.tiers->t0_cap_bytes = std::exchange(draft.kv_cap_bytes, 0);
  }
  return draft;
}

}  // namespace ebb
