// Parses regular expressions to a tree for grammars: those of JSON schemas' `pattern` and of guided
// requests, as far as a context-free grammar can express them.
#ifndef EBB_MODEL_SCHEMA_REGEX_H_
#define EBB_MODEL_SCHEMA_REGEX_H_

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "src/model/sampling/char_set.h"

namespace ebb {

struct RegexNode {
  enum class Kind {
    kSet,       // one character of `set`
    kSequence,  // all of `parts`; none: the empty text
    kChoice,    // one of `parts`
    kRepeat,    // `least` to `most` times the only part
    kBegin,     // "^"; ParseRegex() returns none of these two
    kEnd,       // "$"
  };
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  Kind kind = Kind::kSequence;
  CharSet set = {};
  std::vector<RegexNode> parts = {};
  size_t least = 1;
  size_t most = 1;
};

[[nodiscard]] RegexNode SetNode(CharSet set);
[[nodiscard]] RegexNode Sequence(std::vector<RegexNode> parts);
[[nodiscard]] RegexNode Choice(std::vector<RegexNode> parts);
[[nodiscard]] RegexNode Repeated(RegexNode part, size_t least, size_t most);

// RegexMatch selects how a pattern is matched against a text.
enum class RegexMatch {
  kAnywhere,  // a part of the text matches, unless the pattern is anchored (JSON schemas)
  kWhole,     // all of the text matches
};

// Returns an expression that matches a whole text exactly if `pattern` matches it as `match` says.
// The syntax is that of ECMAScript, and Python's names of groups. Errors: InvalidArgument, naming
// the construct: a pattern that does not parse; lookaround, back references, word boundaries,
// inline flags, Unicode properties, anchors inside; a pattern that is too long or too deep.
[[nodiscard]] Result<RegexNode> ParseRegex(std::string_view pattern, RegexMatch match);

// Returns whether all of `text` (UTF-8) matches; nullopt: the check needs more than `*work` steps;
// a step takes some tens of nanoseconds. Subtracts the steps from `*work`.
[[nodiscard]] std::optional<bool> MatchesWhole(const RegexNode& node, std::string_view text,
                                               size_t* work);

}  // namespace ebb

#endif  // EBB_MODEL_SCHEMA_REGEX_H_
