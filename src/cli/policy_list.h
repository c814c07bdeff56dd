// What --policy and --scorer accept, and --list-policies prints.
#ifndef EBB_CLI_POLICY_LIST_H_
#define EBB_CLI_POLICY_LIST_H_

#include <string_view>

#include "ebb/policy.h"
#include "src/cli/exit_code.h"

namespace ebb::cli {

// Writes both tables to stdout. Needs no model.
ExitCode ListPolicies();
// Of "h2o" or "windowed:h2o:w=4+scorer=random"; null: no built-in policy is called so.
[[nodiscard]] const PolicyInfo* FindBuiltinPolicy(std::string_view name);

}  // namespace ebb::cli

#endif  // EBB_CLI_POLICY_LIST_H_
