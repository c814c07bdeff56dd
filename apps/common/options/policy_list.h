// Prints the names that --policy and --scorer accept, for --list-policies.
#ifndef EBB_APPS_RUN_POLICY_LIST_H_
#define EBB_APPS_RUN_POLICY_LIST_H_

#include "apps/common/terminal/exit_code.h"

namespace ebb::cli {

// Writes the tables of policies and of scorers to stdout. Needs no model.
ExitCode ListPolicies();

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_POLICY_LIST_H_
