#include "apps/common/terminal/say.h"

#include <cstdio>

#include <unistd.h>

#include "apps/common/terminal/screen.h"
#include "apps/common/terminal/terminal_text.h"
#include "apps/common/terminal/wrap.h"

namespace ebb::cli {

void SayText(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return SayWithEscapes(text);
  SayWithEscapes(LinesWithin(ShownOnTerminal(text), TerminalColumns(STDERR_FILENO, 0)));
}

void SayWithEscapes(std::string_view text) {
  (void)std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace ebb::cli
