// The summary of an evaluation's answers: summary.json and summary.md.
#ifndef EBB_APPS_EVAL_SUMMARY_H_
#define EBB_APPS_EVAL_SUMMARY_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// A record per setting, seeds put together, in the order of the answers: policy, budget, tiers, n,
// correct, accuracy, its exact 95 % interval and its standard error, retention and Fisher's p
// against the setting "full" where there is one, how answers failed, and what they cost.
[[nodiscard]] Result<nlohmann::ordered_json> Summarize(
    const std::vector<nlohmann::ordered_json>& results);

// Fisher's p against the setting that SummaryTable calls `name`, to every record: against,
// p_against. InvalidArgument names the settings where none is called so.
[[nodiscard]] Status AddAgainst(const std::string& name, nlohmann::ordered_json* summary);

// Adds, null where no times were kept: seconds an answer, as the mean of each
// setting; tokens_per_s that it generated, prompts read in the same time; overhead, by how much
// longer than the full cache it took for a token (0.1: 10 %), null without that setting.
void AddTimes(const std::vector<nlohmann::ordered_json>& results,
              const std::vector<nlohmann::ordered_json>& times, nlohmann::ordered_json* summary);

[[nodiscard]] std::string SummaryTable(const nlohmann::ordered_json& summary);

// Writes the two files of a summary of `results` into `folder`, and the table, or with --json the
// summary, to stdout. summary.json knows no times, so that the same run gives the same bytes.
[[nodiscard]] Status WriteSummaries(const std::string& folder, nlohmann::ordered_json summary,
                                    const std::vector<nlohmann::ordered_json>& results,
                                    const std::vector<nlohmann::ordered_json>& times,
                                    const CliOptions& options);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_SUMMARY_H_
