// Writes messages for people to stderr.
#ifndef EBB_APPS_TERMINAL_SAY_H_
#define EBB_APPS_TERMINAL_SAY_H_

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ebb::cli {

// Writes the text to stderr; on a terminal in lines that fit its width, and as ShownOnTerminal()
// escapes it, since it may hold names from outside. Ignores errors, so that a closed or full stderr
// does not end the program.
void SayText(std::string_view text);
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  SayText(fmt::format(format, std::forward<Args>(args)...));
}
// Writes the program's own escape sequences. REQUIRES: no part of the text comes from outside.
void SayWithEscapes(std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SAY_H_
