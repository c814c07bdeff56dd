#include "apps/lab/eval/counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "apps/common/report.h"

namespace ebb::cli {
namespace {

constexpr std::array kNames = {"policy", "budget", "tiers", "options"};
constexpr std::array kCounts = {"n", "correct", "no_answer", "truncated", "loops", "errors"};

Json NewRecord(const Json& line) {
  Json record;
  for (const char* name : kNames) record[name] = line[name];
  for (const char* count : kCounts) record[count] = 0;
  return record;
}

void Count(const Json& line, Json* record) {
  const auto add = [&](const char* count, bool is_so) {
    (*record)[count] = (*record)[count].get<int64_t>() + (is_so ? 1 : 0);
  };
  add("n", true);
  add("correct", line["correct"].get<bool>());
  add("no_answer", line["outcome"] == "no_answer" || line["outcome"] == "empty");
  add("truncated", line["finish_reason"] == "length");
  add("loops", line["finish_reason"] == "loop");
  add("errors", line.contains("error"));
}

}  // namespace

Status WriteCounts(const std::vector<Json>& results, const CliOptions& options) {
  Json records = Json::array();
  for (const Json& line : results) {
    auto found = std::ranges::find_if(records, [&](const Json& record) {
      return std::ranges::all_of(kNames,
                                 [&](const char* name) { return record[name] == line[name]; });
    });
    if (found == records.end()) found = records.insert(records.end(), NewRecord(line));
    Count(line, &*found);
  }
  std::string table =
      "| setting | right | no answer | cut | loops | errors |\n|---|---|---|---|---|---|";
  for (const Json& record : records) {
    std::string setting;
    for (const char* name : kNames) {
      const auto text = record[name].get<std::string>();
      if (!text.empty()) setting += (setting.empty() ? "" : " ") + text;
    }
    table += fmt::format("\n| {} | {}/{} | {} | {} | {} | {} |", setting,
                         record["correct"].get<int64_t>(), record["n"].get<int64_t>(),
                         record["no_answer"].get<int64_t>(), record["truncated"].get<int64_t>(),
                         record["loops"].get<int64_t>(), record["errors"].get<int64_t>());
  }
  return WriteRecord(options, records, table);
}

}  // namespace ebb::cli
