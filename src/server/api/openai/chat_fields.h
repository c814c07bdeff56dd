// The fields of a chat: its messages, its tools, the format of the answer and its thought.
#ifndef EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
#define EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "src/server/api/json_fields.h"
#include "src/server/api/openai/request.h"
#include "src/server/api/openai/text_format.h"

namespace ebb::server {

// Reads `messages` in OpenAI's form. `error`: that of `fields`.
void ReadChatMessages(JsonFields* fields, std::optional<ApiError>* error,
                      CompletionRequest* request);

// Reads the fields of a chat beside its messages, which `request` has. flat: see ReadTextFormat().
// A last message of the assistant's that is to be continued becomes request->begun; continues: what
// holds where the body has no `continue_final_message`; nothing: it is continued where it is the
// only one at the end.
void ReadChatOptions(JsonFields* fields, std::optional<ApiError>* error, const FlatFormat& flat,
                     std::optional<bool> continues, CompletionRequest* request);

// Switches thoughts on or off; a switch that is off wins. field: the client's.
void SetThinking(bool thinks, const std::string& field, CompletionRequest* request);
// Sets the effort of thoughts. Errors: an unknown effort.
void SetEffort(const std::optional<std::string>& effort, const std::string& field,
               std::optional<ApiError>* error, CompletionRequest* request);
void SetThinkingBudget(const std::optional<int64_t>& budget, CompletionRequest* request);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
