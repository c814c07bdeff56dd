// Rewrites the parameters of a request's tools so that a grammar can enforce them.
#ifndef EBB_MODEL_CHAT_TOOL_SCHEMAS_H_
#define EBB_MODEL_CHAT_TOOL_SCHEMAS_H_

#include <string>
#include <vector>

#include "ebb/chat.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {

struct ToolSchemas {
  std::vector<Tool> tools;
  // Lists the parts that the grammar does not enforce, such as "tools[1].parameters.properties.x".
  std::vector<std::string> widened = {};
  std::vector<BoundedNumbers> numbers = {};  // for MendedGrammar()
};

[[nodiscard]] ToolSchemas RewriteToolSchemas(const std::vector<Tool>& tools);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_TOOL_SCHEMAS_H_
