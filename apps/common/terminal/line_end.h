// Removes line ends: a newline, with or without a carriage return before it.
#ifndef EBB_APPS_TERMINAL_LINE_END_H_
#define EBB_APPS_TERMINAL_LINE_END_H_

#include <string>

namespace ebb::cli {

// Returns the text without one line end (LF or CR LF) at its end. Keeps a carriage return that no
// newline follows.
[[nodiscard]] inline std::string WithoutLineEnd(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_END_H_
