// The HTML reports: one file each that needs no other and no network.
#ifndef EBB_APPS_PAGE_REPORT_PAGE_H_
#define EBB_APPS_PAGE_REPORT_PAGE_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// The report of `ebb profile`.
[[nodiscard]] std::string ProfilePage(const nlohmann::ordered_json& record);

// The report of `ebb eval`: the run's grid.json, and a record for each setting.
[[nodiscard]] std::string EvalPage(const nlohmann::ordered_json& manifest,
                                   const nlohmann::ordered_json& summary);

}  // namespace ebb::cli

#endif  // EBB_APPS_PAGE_REPORT_PAGE_H_
