// The fields of a chat: its messages, its tools, the format of the answer and its thought.
#ifndef EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
#define EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_

#include <optional>

#include "src/server/api/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads them into request->chat, and thinking budgets into request->generate. A last message of the
// assistant's that is to be continued becomes request->begun. `error`: that of `fields`.
void ReadChatFields(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
