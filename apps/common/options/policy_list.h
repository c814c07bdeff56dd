// The names that --policy and --scorer accept, as --list-policies prints them.
#ifndef EBB_APPS_RUN_POLICY_LIST_H_
#define EBB_APPS_RUN_POLICY_LIST_H_

#include "apps/common/exit_code.h"

namespace ebb::cli {

// Writes both tables to stdout. Needs no model.
ExitCode ListPolicies();

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_POLICY_LIST_H_
