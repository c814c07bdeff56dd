// Reads the prompts of `ebb-lab profile`.
#ifndef EBB_APPS_PROFILE_PROMPTS_H_
#define EBB_APPS_PROFILE_PROMPTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Parses one prompt per line; skips empty lines. A line that begins with a brace is a JSON object
// with a string "prompt" or "question". Errors name the line.
[[nodiscard]] Result<std::vector<std::string>> ParsePrompts(std::string_view text);

// Reads the prompts of --prompts, or the single one of -p, -f or stdin.
[[nodiscard]] Result<std::vector<std::string>> ReadProfilePrompts(const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_PROMPTS_H_
