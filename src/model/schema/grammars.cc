#include "ebb/grammar.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/model/schema/json_grammar.h"
#include "src/model/schema/regex_grammar.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {

Result<std::string> GrammarOfSchema(std::string_view schema) {
  EBB_ASSIGN_OR_RETURN(const RewrittenSchema rewritten,
                       RewriteSchema(schema, SchemaUse::kAnswer, "s"));
  return JsonGrammar(rewritten);
}

Result<std::string> GrammarOfRegex(std::string_view pattern) {
  const Result<RegexNode> node = ParseRegex(pattern, RegexMatch::kWhole);
  if (node.ok()) return RegexGrammar(*node);
  return InvalidArgument("expected a regular expression that is supported, found " +
                         node.status().message());
}

Result<std::string> GrammarOfChoice(std::span<const std::string> choices) {
  constexpr size_t kMostChoices = 1000;
  if (choices.empty() || choices.size() > kMostChoices) {
    return InvalidArgument(
        fmt::format("expected 1 to {} texts, found {}", kMostChoices, choices.size()));
  }
  std::vector<RegexNode> texts;
  for (const std::string& text : choices) {
    std::vector<RegexNode> characters;
    for (const char32_t c : CodePoints(text)) characters.push_back(SetNode({{c, c}}));
    texts.push_back(Sequence(std::move(characters)));
  }
  return RegexGrammar(Choice(std::move(texts)));
}

}  // namespace ebb
