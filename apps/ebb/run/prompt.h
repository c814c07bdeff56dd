// Reads the prompt of `ebb run` from an option, a file or stdin.
#ifndef EBB_APPS_RUN_PROMPT_H_
#define EBB_APPS_RUN_PROMPT_H_

#include <string>

#include "apps/ebb/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// -p, else -f, else stdin; the last two without the line end (CR LF or LF) that they end with.
// Errors: both -p and -f, a file that cannot be read, nothing at all. Where a session is resumed
// there may be none: the text is empty then, and a terminal is not asked for one.
[[nodiscard]] Result<std::string> ReadPromptText(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_PROMPT_H_
