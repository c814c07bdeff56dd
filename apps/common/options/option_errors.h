// Reports errors with the command-line option in place of the library's field.
#ifndef EBB_APPS_OPTIONS_OPTION_ERRORS_H_
#define EBB_APPS_OPTIONS_OPTION_ERRORS_H_

#include <string>

#include "apps/common/options/given_options.h"
#include "apps/common/terminal/exit_code.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns Status::Text() with the command-line option in place of the library's field: "--memory:
// ..." for an error about "memory_bytes". If several options set the field, names the one in
// `given`.
[[nodiscard]] std::string TextWithOption(const Status& status, const GivenOptions& given = {});
// Writes "ebb: <TextWithOption()>" to stderr and returns ExitCodeFor(status). Control characters in
// names from outside are escaped by ShownOnTerminal() even if stderr is a file, since logs are read
// on terminals later. REQUIRES: !status.ok().
ExitCode Fail(const Status& status, const GivenOptions& given = {});

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_OPTION_ERRORS_H_
