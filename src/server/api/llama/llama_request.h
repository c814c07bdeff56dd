// Reads requests of llama-server's API, POST /completion and POST /infill. RequestReader reads the
// fields that this API shares with OpenAI's completions, as it does for those. llama_exchange.h
// writes the answers.
#ifndef EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_
#define EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_

#include <cstdint>
#include <vector>

#include "ebb/model.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

enum class LlamaEndpoint : uint8_t { kCompletion, kInfill };

// Reads a request of `endpoint`. Errors: 400 and 404 (another model) with the field.
[[nodiscard]] ApiResult<CompletionRequest> ReadLlama(LlamaEndpoint endpoint, const Json& body,
                                                     const RequestDefaults& defaults);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_LLAMA_LLAMA_REQUEST_H_
