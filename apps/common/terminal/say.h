// Words for people, on stderr.
#ifndef EBB_APPS_TERMINAL_SAY_H_
#define EBB_APPS_TERMINAL_SAY_H_

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ebb::cli {

// Writes the text to stderr, to a terminal as ShownOnTerminal(), since it may hold names from
// outside. Ignores errors: a stderr that is closed or full ends nothing.
void SayText(std::string_view text);
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  SayText(fmt::format(format, std::forward<Args>(args)...));
}
// Writes escape sequences of the program's own. REQUIRES: nothing in the text is from outside.
void SayWithEscapes(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SAY_H_
