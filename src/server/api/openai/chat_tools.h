// The tools of a chat, the choice among them, and the ids that connect calls with their results.
#ifndef EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_
#define EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/json_fields.h"
#include "src/server/api/openai/request.h"

namespace ebb::server {

// Reads `tools` and `tool_choice` in the forms of OpenAI's and Anthropic's interfaces,
// `parallel_tool_calls`, and the older `functions` and `function_call`. Errors go to `error`.
void ReadChatTools(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request);

// Adds the function whose members `fields` are to the tools of the chat, under `name`. One without
// a name, or with that of an earlier tool, is ignored. path: the client's, of the tool.
void AddTool(JsonFields* fields, std::string name, const std::string& path,
             CompletionRequest* request);

// Gives calls without an id one, and results without an id that of the first open call, of the same
// name where they name one. Some servers have no ids.
void CompleteCallIds(std::vector<ChatMessage>* messages);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CHAT_TOOLS_H_
