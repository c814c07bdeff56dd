#include "ebb/grammar.h"

#include <string>
#include <string_view>

#include <fmt/format.h>

#include "src/model/schema/json_grammar.h"
#include "src/model/schema/regex_grammar.h"
#include "src/model/schema/schema_rewrite.h"

namespace ebb {
namespace {

std::string Literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    const auto byte = static_cast<unsigned char>(c);
    const bool is_control = byte < 0x20 || byte == 0x7F;
    literal += is_control ? fmt::format("\\x{:02X}", byte) : std::string(1, c);
  }
  return literal + '"';
}

}  // namespace

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
  std::string grammar = "root ::= ";
  for (const std::string& text : choices) {
    if (&text != choices.data()) grammar += " | ";
    grammar += Literal(text);
  }
  return grammar + "\n";
}

}  // namespace ebb
