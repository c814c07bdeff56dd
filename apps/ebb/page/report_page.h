// The HTML reports: one file each that needs no other and no network.
#ifndef EBB_APPS_PAGE_REPORT_PAGE_H_
#define EBB_APPS_PAGE_REPORT_PAGE_H_

#include <string>

#include <nlohmann/json.hpp>

namespace ebb::cli {

// The report of `ebb profile`.
[[nodiscard]] std::string ProfilePage(const nlohmann::ordered_json& record);

// The report of `ebb eval`: what was asked, a record for each setting, and how far fronts lie apart
// (apps/ebb/eval/margins.h).
[[nodiscard]] std::string EvalPage(const nlohmann::ordered_json& manifest,
                                   const nlohmann::ordered_json& summary,
                                   const nlohmann::ordered_json& margins);

// The report of `ebb report --fronts`: what CompareFronts() gave (apps/ebb/eval/fronts.h).
[[nodiscard]] std::string FrontsPage(const nlohmann::ordered_json& fronts);

}  // namespace ebb::cli

#endif  // EBB_APPS_PAGE_REPORT_PAGE_H_
