// Names of tools as models can take them. Grammars of calls know 1 to 64 letters, digits, '_' and
// '-'; clients also have longer names, dots, slashes and other scripts.
#ifndef EBB_SERVER_API_TOOL_NAMES_H_
#define EBB_SERVER_API_TOOL_NAMES_H_

#include <map>
#include <string>

#include "ebb/chat.h"

namespace ebb::server {

// The client's names by those that the model gets; names that stay as they are, are left out.
using ToolNames = std::map<std::string, std::string>;

// Gives each tool whose name no model takes another one, wherever the request names it: in its
// tools, calls, results and tool_choice. The new names differ from all others.
[[nodiscard]] ToolNames RenameTools(ChatRequest* chat);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_TOOL_NAMES_H_
