// Converts expressions to grammars: to GBNF, and to the patterns that the schema converter of
// llama.cpp's common library accepts.
#ifndef EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_
#define EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_

#include <cstddef>
#include <optional>
#include <string>

#include "src/model/schema/regex.h"

namespace ebb {

// Returns a GBNF grammar of the texts that the expression matches, beginning at the rule `root`.
// Names of its other rules begin with `root`; for "root" they begin with "part".
[[nodiscard]] std::string RegexGrammar(const RegexNode& node, const std::string& root = "root");

// Returns an upper bound of the expression's nodes after counts too large for a grammar are
// replaced by nested counts, which repeat their part.
[[nodiscard]] double ExpandedNodes(const RegexNode& node);

// Returns the expression of JSON strings, without their quotes, whose values `node` matches:
// quotes, backslashes and control characters are escaped.
[[nodiscard]] RegexNode JsonEncoded(const RegexNode& node);

// Returns `node` as a pattern that the converter compiles exactly. The converter copies a pattern's
// characters into the grammar unchanged, knows no escapes of classes, and ignores bounds above
// 2,000.
[[nodiscard]] std::string ConverterPattern(const RegexNode& node);

// LengthRange holds the shortest and the longest match of an expression, in characters.
struct LengthRange {
  size_t least = 0;
  size_t most = 0;  // RegexNode::kNoLimit: no limit
};
[[nodiscard]] LengthRange LengthsOf(const RegexNode& node);

// Returns `node` restricted to matches with lengths within `range`; nullopt if no match has such a
// length, or if bounds of a single repetition cannot express the restriction.
[[nodiscard]] std::optional<RegexNode> WithLengths(const RegexNode& node, LengthRange range);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_REGEX_GRAMMAR_H_
