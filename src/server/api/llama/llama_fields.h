// Fields of llama-server's completions that OpenAI's completions lack. llama_request.cc reads them;
// llama_fields.cc adds them to a request once the model is known.
#ifndef EBB_SERVER_API_LLAMA_LLAMA_FIELDS_H_
#define EBB_SERVER_API_LLAMA_LLAMA_FIELDS_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "src/server/api/llama/infill.h"
#include "src/server/api/llama/llama_request.h"
#include "src/server/api/llama/llama_samplers.h"

namespace ebb::server {

// A prompt as it was sent: texts and tokens in any order.
using MixedPrompt = std::vector<std::variant<std::string, Token>>;

struct LlamaBias {
  std::variant<std::string, Token> of;  // each token of a text
  float bias = 0;
};

// Holds the fields as they were read; texts are not tokenized yet.
struct LlamaFields {
  LlamaAnswer answer;
  std::vector<MixedPrompt> prompts;
  std::optional<InfillRequest> infill;
  LlamaSamplers samplers;
  std::vector<LlamaBias> biases;
  std::optional<float> temperature;
  std::optional<int> max_tokens, repeat_last_n, min_keep, num_probs;
  double line_seconds = 0;
};

// Adds `fields` to `request`, and sets the members of `answer` that depend on the model. Errors:
// 400; 501 (the vocabulary has no tokens for /infill).
[[nodiscard]] std::optional<ApiError> ApplyLlamaFields(const Model& model,
                                                       const LlamaFields& fields,
                                                       CompletionRequest* request,
                                                       LlamaAnswer* answer);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_LLAMA_LLAMA_FIELDS_H_
