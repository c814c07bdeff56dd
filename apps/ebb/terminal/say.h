// Words for people, on stderr.
#ifndef EBB_APPS_TERMINAL_SAY_H_
#define EBB_APPS_TERMINAL_SAY_H_

#include <cstdio>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ebb::cli {

// Whether or not anybody reads it: a stderr that is closed, or full, ends nothing.
template <typename... Args>
void Say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SAY_H_
