// What --policy and --scorer accept, and --list-policies prints.
#ifndef EBB_CLI_POLICY_LIST_H_
#define EBB_CLI_POLICY_LIST_H_

#include "src/cli/exit_code.h"

namespace ebb::cli {

// Writes both tables to stdout. Needs no model.
ExitCode ListPolicies();

}  // namespace ebb::cli

#endif  // EBB_CLI_POLICY_LIST_H_
