// Teacher-forced logits through the public library: prefill, then one decode step per token.
#ifndef EBB_TESTS_SUPPORT_ENGINE_ENGINE_LOGITS_H_
#define EBB_TESTS_SUPPORT_ENGINE_ENGINE_LOGITS_H_

#include <memory>
#include <span>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

struct EngineLogitsOptions {
  EngineOptions engine;
  SessionOptions session;
  size_t num_prefill = 32;  // the rest is decoded
};

// [tokens, vocab_size]: what follows each token.
[[nodiscard]] Result<std::vector<float>> EngineLogits(const std::shared_ptr<const Model>& model,
                                                      std::span<const Token> tokens,
                                                      const EngineLogitsOptions& options);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_ENGINE_LOGITS_H_
