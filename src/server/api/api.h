// The interfaces that the server speaks: reads a body into a request, and makes the exchange that
// writes its answers.
#ifndef EBB_SERVER_API_API_H_
#define EBB_SERVER_API_API_H_

#include <cstdint>
#include <memory>
#include <string>

#include "src/server/api/openai/exchange.h"
#include "src/server/api/responses/response_store.h"

namespace ebb::server {

enum class Api : uint8_t {
  kChat,       // OpenAI's /v1/chat/completions
  kText,       // and /v1/completions
  kResponses,  // and /v1/responses
  kMessages,   // Anthropic's /v1/messages
  kLlama,      // llama-server's /completion
  kInfill,     // and /infill
};

// Errors: 400 and 404 (another model), whose fields are the client's. responses: that a request may
// continue.
[[nodiscard]] ApiResult<CompletionRequest> ReadRequest(Api api, const Json& body,
                                                       const RequestDefaults& defaults,
                                                       ResponseStore* responses,
                                                       ReadScope scope = ReadScope::kAnswer);
// REQUIRES: Prepare() or PrepareTurn() of options.request.
[[nodiscard]] std::unique_ptr<Exchange> MakeExchange(Api api, std::shared_ptr<const Model> model,
                                                     ExchangeOptions options);

// The id of an answer, unique in a run of the server. number: of the answer. A response's cannot be
// guessed, since every client that knows it may read the response.
[[nodiscard]] std::string MakeId(Api api, uint64_t run, uint64_t number);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_API_H_
