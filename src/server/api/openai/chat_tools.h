// Reads the tools of a chat, the choice among them, and the ids that connect calls with their
// results.
#ifndef EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_
#define EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads `tools` and `tool_choice` in the forms of OpenAI's and Anthropic's APIs,
// `parallel_tool_calls`, and the older `functions` and `function_call`. Errors go to `error`.
void ReadChatTools(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request);

// Adds the function that `fields` describe to the tools of the chat, under `name`. A function
// without a name, or with that of an earlier tool, is ignored. `path`: the tool's path in the
// client's body.
void AddTool(JsonFields* fields, std::string name, const std::string& path,
             CompletionRequest* request);

// Gives each call without an id an id, and each result without an id that of the first call without
// a result (of the same name if the result names one). Some servers send no ids.
void CompleteCallIds(std::vector<ChatMessage>* messages);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_
