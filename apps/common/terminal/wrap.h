// Breaks text into lines for terminals.
#ifndef EBB_APPS_TERMINAL_WRAP_H_
#define EBB_APPS_TERMINAL_WRAP_H_

#include <string>
#include <string_view>

namespace ebb::cli {

// Returns the text in lines of at most `columns` characters, broken at blanks; a longer word has a
// line of its own. Lines but the first begin with `indent` blanks, and the first counts as if it
// did.
[[nodiscard]] std::string Wrapped(std::string_view text, int indent, int columns);

// Returns the text with each line of more than `columns` characters broken at blanks; what follows
// a break is indented by two. Returns the text itself if `columns` is 0.
[[nodiscard]] std::string LinesWithin(std::string_view text, int columns);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_WRAP_H_
