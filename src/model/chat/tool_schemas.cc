#include "src/model/chat/tool_schemas.h"

#include <utility>

#include <fmt/format.h>

#include "src/model/schema/json_grammar.h"

namespace ebb {

ToolSchemas RewriteToolSchemas(const std::vector<Tool>& tools) {
  ToolSchemas all = {.tools = tools};
  for (size_t i = 0; i < tools.size(); ++i) {
    std::string& parameters = all.tools[i].parameters;
    if (parameters.empty()) continue;
    // Each tool gets its own prefix of names: all tools share one grammar, in which the converter
    // would take definitions with equal names for the same one.
    Result<RewrittenSchema> rewritten =
        RewriteSchema(parameters, SchemaUse::kTool, fmt::format("t{}", i));
    if (!rewritten.ok() || !JsonGrammar(*rewritten).ok()) {
      rewritten = RewrittenSchema{.schema = R"({"type":"object"})", .widened = {""}};
    }
    parameters = std::move(rewritten->schema);
    all.numbers.insert(all.numbers.end(), rewritten->numbers.begin(), rewritten->numbers.end());
    for (const std::string& path : rewritten->widened) {
      const bool has_dot = !path.empty() && path[0] != '[';
      all.widened.push_back(fmt::format("tools[{}].parameters{}{}", i, has_dot ? "." : "", path));
    }
  }
  return all;
}

}  // namespace ebb
