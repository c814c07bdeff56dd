// The HTML report of `ebb profile`.
#ifndef EBB_CLI_PROFILE_REPORT_H_
#define EBB_CLI_PROFILE_REPORT_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// One page that draws the record, with everything that it needs in it.
[[nodiscard]] std::string ProfilePage(const nlohmann::ordered_json& record);

}  // namespace ebb::cli

#endif  // EBB_CLI_PROFILE_REPORT_H_
