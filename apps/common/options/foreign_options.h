// Translates options and forms of llama.cpp's and Ollama's programs into those of ebb, or returns
// an error that names ebb's replacement.
#ifndef EBB_APPS_OPTIONS_FOREIGN_OPTIONS_H_
#define EBB_APPS_OPTIONS_FOREIGN_OPTIONS_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Replaces the options in `arguments` that llama.cpp or Ollama spell differently and that mean the
// same here (-c 4096 becomes --context 4096), and leaves out options whose behaviour ebb always has
// (--jinja). `rows` are the options of the command; they win over names of other programs, and
// words after an option that takes a value are left alone. Errors: InvalidArgument for an option
// that ebb does not have, with a line that names ebb's own way.
[[nodiscard]] Result<std::vector<std::string>> WithoutForeignOptions(
    std::span<const OptionRow* const> rows, std::span<const std::string> arguments);

// Replaces the words of `ebb run MODEL [PROMPT...]`, Ollama's form, by -m and -p. `rows` are the
// options of the command; words are left alone unless the command takes --model and no words of its
// own. Errors: InvalidArgument for a word that has no place, such as a prompt for `ebb serve`.
[[nodiscard]] Result<std::vector<std::string>> WithoutBareWords(
    std::span<const OptionRow* const> rows, std::span<const std::string> arguments);

// Returns this program's replacement of a command of another program ("ps", "show"), or an empty
// text.
[[nodiscard]] std::string_view HintForCommand(std::string_view name);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_FOREIGN_OPTIONS_H_
