// Selects the API of a request: reads a body into a request, and makes the exchange that writes its
// answers.
#ifndef EBB_SERVER_API_API_H_
#define EBB_SERVER_API_API_H_

#include <cstdint>
#include <memory>
#include <string>

#include "src/server/api/base/response_store.h"
#include "src/server/api/openai/exchange.h"

namespace ebb::server {

enum class Api : uint8_t {
  kChat,       // OpenAI's /v1/chat/completions
  kText,       // OpenAI's /v1/completions
  kResponses,  // OpenAI's /v1/responses
  kMessages,   // Anthropic's /v1/messages
  kLlama,      // llama-server's /completion
  kInfill,     // llama-server's /infill
};

// Reads a body of `api` into a request. `responses`: the stored responses that the request may
// continue. Errors: 400 and 404 (another model); the error names the field of the client's body.
[[nodiscard]] ApiResult<CompletionRequest> ReadRequest(Api api, const Json& body,
                                                       const RequestDefaults& defaults,
                                                       ResponseStore* responses,
                                                       ReadScope scope = ReadScope::kAnswer);
// Makes the exchange that writes the answers in the form of `api`. REQUIRES: Prepare() or
// PrepareTurn() was called on options.request.
[[nodiscard]] std::unique_ptr<Exchange> MakeExchange(Api api, std::shared_ptr<const Model> model,
                                                     ExchangeOptions options);

// Returns the id of the answer with this number, unique in a run of the server. The id of a
// response cannot be guessed, since every client that knows it may read the response.
[[nodiscard]] std::string MakeId(Api api, uint64_t run, uint64_t number);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_API_H_
