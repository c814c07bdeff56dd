// Computes the key metrics of a model (src/attention/trellis.h) from the queries that it has while
// it reads a text. The text is always the same, so that the codes of a row depend on the model and
// the row alone, not on the conversation, on how a prompt was cut or on the tiers.
#ifndef EBB_SESSION_KEY_METRICS_H_
#define EBB_SESSION_KEY_METRICS_H_

#include <memory>
#include <span>
#include <string_view>

#include "ebb/engine.h"

namespace ebb {

// Computes the metric of each stream, [streams, KeyMetricFloats(head_dim)]. Takes them from
// EngineOptions::metrics_folder, or reads the text on the processor, with the threads and the row
// type of `options`, and keeps them there. kernel: the name of the engine's kernel of attention.
// Errors: those of engines and sessions; Corrupt if they are not finite.
[[nodiscard]] Status ComputeKeyMetrics(const std::shared_ptr<const Model>& model,
                                       const EngineOptions& options, std::string_view kernel,
                                       std::span<float> metrics);

}  // namespace ebb

#endif  // EBB_SESSION_KEY_METRICS_H_
