// Names of tools as models can take them. Grammars of calls know 1 to 64 letters, digits, '_' and
// '-'; clients also have longer names, dots, slashes and other scripts.
#ifndef EBB_SERVER_API_TOOL_NAMES_H_
#define EBB_SERVER_API_TOOL_NAMES_H_

#include <map>
#include <string>
#include <vector>

#include "ebb/chat.h"

namespace ebb::server {

// The client's names by those that the model gets; names that stay as they are, are left out.
using ToolNames = std::map<std::string, std::string>;

// Gives each tool whose name no model takes another one, wherever the request names it: in its
// tools, calls, results and tool_choice. The new names differ from all others.
[[nodiscard]] ToolNames RenameTools(ChatRequest* chat);

// The client's path of each tool of a chat, such as "tools[3]"; some tools may have been left out.
using ToolPaths = std::vector<std::string>;
// A field of a chat, "tools[1].parameters", under the client's path of that tool. Other fields, and
// tools without a path, stay as they are.
[[nodiscard]] std::string UnderToolPaths(const std::string& field, const ToolPaths& paths);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_TOOL_NAMES_H_
