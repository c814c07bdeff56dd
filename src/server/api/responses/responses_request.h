// Reads requests of OpenAI's /v1/responses. RequestReader reads the fields that this API shares
// with /v1/chat/completions, and ebb's own fields, as it does for that API.
#ifndef EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_
#define EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_

#include "src/server/api/base/response_store.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads a request. `stored`: the responses that a request may continue or refer to. Errors: 400 and
// 404 (another model) with the field.
[[nodiscard]] ApiResult<CompletionRequest> ReadResponses(const Json& body,
                                                         const RequestDefaults& defaults,
                                                         ResponseStore* stored,
                                                         ReadScope scope = ReadScope::kAnswer);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_RESPONSES_RESPONSES_REQUEST_H_
