// Reads requests of OpenAI's /v1/chat/completions and /v1/completions.
#ifndef EBB_SERVER_API_OPENAI_OPENAI_REQUEST_H_
#define EBB_SERVER_API_OPENAI_OPENAI_REQUEST_H_

#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads a request of a chat. Errors: 400 and 404 (another model) with the field.
[[nodiscard]] ApiResult<CompletionRequest> ReadChat(const Json& body,
                                                    const RequestDefaults& defaults,
                                                    ReadScope scope = ReadScope::kAnswer);
[[nodiscard]] ApiResult<CompletionRequest> ReadText(const Json& body,
                                                    const RequestDefaults& defaults);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_OPENAI_REQUEST_H_
