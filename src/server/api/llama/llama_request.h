// Reads requests of llama-server's own interface, POST /completion and POST /infill. Fields that
// OpenAI's completions share stay in a body for ReadRequest(); the others are added to the request
// that ReadRequest() returns. llama_exchange.h writes the answers.
#ifndef EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_
#define EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/api_error.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

enum class LlamaEndpoint { kCompletion, kInfill };

// Options of the answer. `generation_settings` and `prompts` are set while the request is prepared.
struct LlamaAnswer {
  bool returns_tokens = false;
  bool post_sampling_probs = false;
  bool timings_per_token = false;
  bool returns_progress = false;
  std::vector<std::string> response_fields = {};  // empty: all
  Json generation_settings = {};
  std::vector<std::string> prompts = {};  // [choices], as texts
};

struct LlamaRequest {
  Json body;  // for ReadRequest(Endpoint::kText)
  std::shared_ptr<LlamaAnswer> answer;
  // Adds llama-server's own fields to the request that ReadRequest() made of `body`. Errors: 400;
  // 501 (the vocabulary has no tokens for /infill).
  std::function<std::optional<ApiError>(const Model& model, CompletionRequest* request)> apply;
  // Keeps the prompts that Prepare() made, as texts for the answer.
  std::function<void(const Model& model, const std::vector<Job>& jobs)> note;
};

// Errors: 400 with the field.
[[nodiscard]] ApiResult<LlamaRequest> ReadLlamaRequest(LlamaEndpoint endpoint, Json body);

// Returns `generation_settings` of an answer; its seed is that of the first choice.
[[nodiscard]] Json LlamaSettings(const Model& model, const CompletionRequest& request,
                                 const LlamaAnswer& answer);
// Returns the settings of a request without fields, for GET /props.
[[nodiscard]] Json LlamaDefaults(const RequestDefaults& defaults);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_
