#include "apps/common/terminal/say.h"

#include <cstdio>

#include <unistd.h>

#include "apps/common/terminal/terminal_text.h"

namespace ebb::cli {

void SayText(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return SayWithEscapes(text);
  SayWithEscapes(ShownOnTerminal(text));
}

void SayWithEscapes(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace ebb::cli
