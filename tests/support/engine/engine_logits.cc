#include "tests/support/engine/engine_logits.h"

#include <algorithm>

namespace ebb {

Result<std::vector<float>> EngineLogits(const std::shared_ptr<const Model>& model,
                                        std::span<const Token> tokens,
                                        const EngineLogitsOptions& options) {
  std::vector<float> logits;
  logits.reserve(tokens.size() * model->shape().vocab_size);
  const auto append = [&](std::span<const float> row) {
    logits.insert(logits.end(), row.begin(), row.end());
  };
  EBB_ASSIGN_OR_RETURN(auto engine, Engine::Create(model, options.engine));
  EBB_ASSIGN_OR_RETURN(auto session, engine->OpenSession(options.session));
  const size_t num_prefill = std::min(options.num_prefill, tokens.size());
  PrefillOptions prefill;
  prefill.on_logits = [&](Position, std::span<const float> row) { append(row); };
  EBB_RETURN_IF_ERROR(session->Prefill(tokens.first(num_prefill), prefill).status);
  for (const Token token : tokens.subspan(num_prefill)) {
    EBB_RETURN_IF_ERROR(session->Decode(token).status);
    append(session->logits());
  }
  return logits;
}

}  // namespace ebb
