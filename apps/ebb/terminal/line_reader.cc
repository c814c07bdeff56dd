#include "apps/ebb/terminal/line_reader.h"

#include <clocale>
#include <cstdlib>
#include <iostream>
#include <memory>

#include <editline/readline.h>
#include <unistd.h>

namespace ebb::cli {

LineReader::LineReader() : terminal_(isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0) {
  if (!terminal_) return;
  std::setlocale(LC_CTYPE, "");  // characters of more than one byte
  // The locale "C" would drop them.
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  rl_outstream = stderr;  // stdout is for what the model says
}

std::optional<std::string> LineReader::Next(const std::string& prompt) {
  if (terminal_) {
    const std::unique_ptr<char, decltype(&std::free)> line(readline(prompt.c_str()), &std::free);
    if (line == nullptr) return std::nullopt;
    if (*line != '\0') add_history(line.get());
    return std::string(line.get());
  }
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

}  // namespace ebb::cli
