// Reads the fields of a chat: messages, tools, the format of the answer and its thought.
#ifndef EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
#define EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/request.h"
#include "src/server/api/openai/text_format.h"

namespace ebb::server {

// Reads `messages` in OpenAI's form. `error` is the error of `fields`.
void ReadChatMessages(JsonFields* fields, std::optional<ApiError>* error,
                      CompletionRequest* request);

// Reads the fields of a chat except its messages, which `request` has. `flat`: see
// ReadTextFormat(). A last message of the assistant that is to be continued moves to
// request->begun. `continues` says whether it is, if the body has no `continue_final_message`;
// nothing: it is continued if no other message of the assistant directly precedes it.
void ReadChatOptions(JsonFields* fields, std::optional<ApiError>* error, const FlatFormat& flat,
                     std::optional<bool> continues, CompletionRequest* request);

// Switches thoughts on or off; if several fields differ, off wins. `field`: the client's name.
void SetThinking(bool thinks, const std::string& field, CompletionRequest* request);
// Sets the effort of thoughts. Errors: an unknown effort.
void SetEffort(const std::optional<std::string>& effort, const std::string& field,
               std::optional<ApiError>* error, CompletionRequest* request);
void SetThinkingBudget(const std::optional<int64_t>& budget, CompletionRequest* request);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CHAT_FIELDS_H_
