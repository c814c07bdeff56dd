// Runs batches of one sequence through libllama, for references of heads.
#ifndef EBB_TESTS_SUPPORT_ENGINE_LLAMA_BATCHES_H_
#define EBB_TESTS_SUPPORT_ENGINE_LLAMA_BATCHES_H_

#include <fmt/format.h>
#include <llama-ext.h>
#include <llama.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

inline llama_context_params ReferenceContextParams(int context) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = params.n_ubatch = static_cast<uint32_t>(context);
  params.n_threads = params.n_threads_batch = 1;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.swa_full = true;
  return params;
}

// Decodes tokens from `first` on, with these hidden rows, one for each token, if there are any. The
// logits after the last token are wanted.
inline Status RunBatch(llama_context* context, std::span<const Token> tokens,
                       std::span<const float> rows, Position first) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = first + static_cast<Position>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i + 1 == tokens.size() ? 1 : 0;
  }
  if (!rows.empty()) {
    batch.embd = static_cast<float*>(std::malloc(rows.size_bytes()));
    std::ranges::copy(rows, batch.embd);
  }
  const int error = llama_decode(context, batch);
  llama_batch_free(batch);
  return error == 0 ? OkStatus() : Internal(fmt::format("llama_decode fails with {}", error));
}

// Returns the inputs of `layers` for each token of the text that the context has decoded, one layer
// behind the other. REQUIRES: llama_set_embeddings_layer_inp() was called for them.
inline std::vector<float> FeaturesOf(llama_context* context, std::span<const int> layers,
                                     size_t num_tokens, size_t floats) {
  std::vector<float> features(num_tokens * layers.size() * floats);
  for (size_t i = 0; i < layers.size(); ++i) {
    const float* from = llama_get_embeddings_layer_inp(context, layers[i]);
    for (size_t token = 0; token < num_tokens; ++token) {
      std::copy_n(from + token * floats, floats,
                  features.begin() + (token * layers.size() + i) * floats);
    }
  }
  return features;
}

// Returns a batch of rows in place of tokens, from position 0 on. All have outputs.
inline llama_batch BatchOfRows(std::span<const float> rows, size_t floats) {
  const auto num_rows = static_cast<int32_t>(rows.size() / floats);
  llama_batch batch = llama_batch_init(num_rows, static_cast<int32_t>(floats), 1);
  batch.n_tokens = num_rows;
  std::ranges::copy(rows, batch.embd);
  for (int32_t i = 0; i < num_rows; ++i) {
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  return batch;
}

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_LLAMA_BATCHES_H_
