// Expressions as grammars: GBNF, and the patterns that the schema converter of llama.cpp's common
// library takes.
#ifndef EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_
#define EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_

#include <cstddef>
#include <optional>
#include <string>

#include "src/model/schema/regex.h"

namespace ebb {

// A grammar in GBNF of what the expression matches, from its rule `root`, with which the names of
// its other rules begin; those of "root" begin with "part".
[[nodiscard]] std::string RegexGrammar(const RegexNode& node, const std::string& root = "root");

// Returns at least the number of nodes that the expression has once counts that are too large for a
// grammar are counts within each other, which repeat their part.
[[nodiscard]] double ExpandedNodes(const RegexNode& node);

// The expression of JSON strings, without their quotes, whose values `node` matches: quotes,
// backslashes and control characters are escaped.
[[nodiscard]] RegexNode JsonEncoded(const RegexNode& node);

// `node` as a pattern that the converter compiles into exactly that: it puts a pattern's characters
// into the grammar as they are, knows no escapes of classes, and leaves bounds above 2,000 out.
[[nodiscard]] std::string ConverterPattern(const RegexNode& node);

// The lengths, in characters, of what matches.
struct LengthRange {
  size_t least = 0;
  size_t most = 0;  // RegexNode::kNoLimit: no limit
};
[[nodiscard]] LengthRange LengthsOf(const RegexNode& node);

// `node` where only lengths within `range` match. Nothing: that takes more than one count.
[[nodiscard]] std::optional<RegexNode> WithLengths(const RegexNode& node, LengthRange range);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_
