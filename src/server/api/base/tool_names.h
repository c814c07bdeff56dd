// Replaces names of tools that models cannot produce. Grammars of calls allow 1 to 64 letters,
// digits, '_' and '-'; clients also use longer names, dots, slashes and other scripts.
#ifndef EBB_SERVER_API_BASE_TOOL_NAMES_H_
#define EBB_SERVER_API_BASE_TOOL_NAMES_H_

#include <map>
#include <string>

#include "ebb/chat.h"

namespace ebb::server {

// ToolNames maps the names that the model gets to the client's names. It omits names that stay as
// they are.
using ToolNames = std::map<std::string, std::string>;

// Gives each tool whose name the grammar does not allow another name, everywhere in the request: in
// its tools, calls, results and tool_choice. The new names differ from all others.
[[nodiscard]] ToolNames RenameTools(ChatRequest* chat);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_TOOL_NAMES_H_
