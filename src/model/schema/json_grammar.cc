#include "src/model/schema/json_grammar.h"

#include <exception>
#include <string_view>

#include <json-schema-to-grammar.h>

namespace ebb {
namespace {

constexpr std::string_view kCharRule =
    R"(char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" [0-9a-fA-F]{4}))";
constexpr std::string_view kMendedCharRule =
    R"(char ::= [^"\\\x7F\x00-\x1F] | [\\] (["\\bfnrt] | "u" )"
    R"(([0-9a-cA-CefEF] [0-9a-fA-F] | [dD] [0-7]) [0-9a-fA-F] [0-9a-fA-F]))";
// kOtherNames begins every rule for names that are not in a list.
constexpr std::string_view kOtherNames = R"( ::= ["] ( )";
constexpr std::string_view kNoQuote = R"([^")";
constexpr std::string_view kPlain = R"([^"\\\x7F\x00-\x1F)";

}  // namespace

Result<std::string> JsonGrammar(const RewrittenSchema& rewritten) {
  try {
    return MendedGrammar(json_schema_to_grammar(common_json::parse(rewritten.schema)),
                         rewritten.numbers);
  } catch (const std::exception& error) {
    return InvalidArgument(error.what());
  }
}

std::string MendedGrammar(const std::string& grammar, const std::vector<BoundedNumbers>& numbers) {
  std::string mended;
  for (std::string_view rest = grammar; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size() - 1);
    std::string_view line = rest.substr(0, end + 1);
    rest.remove_prefix(end + 1);
    if (line.starts_with(kCharRule)) {
      mended += kMendedCharRule;
      line.remove_prefix(kCharRule.size());
    }
    const size_t rule = line.find(" ::= ");
    if (rule != std::string_view::npos && line.substr(rule).starts_with(kOtherNames)) {
      for (size_t at; (at = line.find(kNoQuote)) != std::string_view::npos;) {
        mended += line.substr(0, at);
        mended += kPlain;
        line.remove_prefix(at + kNoQuote.size());
      }
    }
    mended += line;
  }
  for (const BoundedNumbers& one : numbers) {
    const std::string literal = "\"" + one.stand_in + "\"";
    for (size_t at = 0; (at = mended.find(literal, at)) != std::string::npos;) {
      mended.replace(at, literal.size(), one.rule);
    }
    mended += one.rules;
  }
  return mended;
}

}  // namespace ebb
