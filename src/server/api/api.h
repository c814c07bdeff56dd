// The interfaces that the server speaks. Inside there is OpenAI's: a body in another one's form
// becomes the body of a request for a chat or a completion, whose answer is put into that form.
#ifndef EBB_SERVER_API_API_H_
#define EBB_SERVER_API_API_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/server/api/openai/exchange.h"
#include "src/server/api/responses/response_store.h"
#include "src/server/api/tool_names.h"

namespace ebb::server {

enum class Api : uint8_t {
  kChat,       // OpenAI's /v1/chat/completions
  kText,       // and /v1/completions
  kResponses,  // and /v1/responses
  kMessages,   // Anthropic's /v1/messages
  kLlama,      // llama-server's /completion
  kInfill,     // and /infill
};
[[nodiscard]] Endpoint EndpointOf(Api api);

// A body as ReadRequest() takes it, and what its answer becomes.
struct ApiRequest {
  Json body;
  // An error about `body`, under the client's names.
  std::function<ApiError(ApiError)> renamed;
  std::function<std::unique_ptr<Exchange>(std::shared_ptr<const Model>, ExchangeOptions)> exchange;
  // Adds to the request that ReadRequest() made of `body` what such a body cannot say; may be null.
  std::function<std::optional<ApiError>(const Model& model, CompletionRequest* request)> apply = {};
  // Sees the jobs that Prepare() made of the request; may be null.
  std::function<void(const Model& model, const std::vector<Job>& jobs)> note = {};
  // Keeps an answer that is over, without an error, where that was asked for; may be null.
  std::function<void(const Exchange&)> keep = {};
  std::vector<std::string> ignored = {};  // what was left out of `body`, under the client's names
  ToolPaths tool_paths = {};              // of the tools of `body`; empty: they are the client's
};
// Errors: 400, whose fields are the client's.
[[nodiscard]] ApiResult<ApiRequest> ReadApi(Api api, Json body,
                                            const std::shared_ptr<ResponseStore>& responses);

// The id of an answer, unique in a run of the server. number: of the answer. A response's cannot be
// guessed, since every client that knows it may read the response.
[[nodiscard]] std::string MakeId(Api api, uint64_t run, uint64_t number);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_API_H_
