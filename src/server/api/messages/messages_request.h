// Reads requests of Anthropic's /v1/messages. RequestReader reads the fields that this API shares
// with /v1/chat/completions, and ebb's own fields, as it does for that API.
#ifndef EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_
#define EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_

#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads a request. Errors: 400 and 404 (another model) with the field.
[[nodiscard]] ApiResult<CompletionRequest> ReadMessages(const Json& body,
                                                        const RequestDefaults& defaults,
                                                        ReadScope scope = ReadScope::kAnswer);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_MESSAGES_MESSAGES_REQUEST_H_
