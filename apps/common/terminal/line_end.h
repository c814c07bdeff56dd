// A line ends at a newline, with or without a carriage return before it.
#ifndef EBB_APPS_TERMINAL_LINE_END_H_
#define EBB_APPS_TERMINAL_LINE_END_H_

#include <string>

namespace ebb::cli {

// The text less the line end that it ends with, if it ends with one. Without a newline a carriage
// return is a part of the text.
[[nodiscard]] inline std::string WithoutLineEnd(std::string text) {
  if (!text.ends_with('\n')) return text;
  text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_LINE_END_H_
