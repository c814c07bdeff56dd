// Adds the fields that the records of all measurements share, and writes records to stdout: as a
// line of JSON or as text for people.
#ifndef EBB_APPS_BENCH_REPORT_H_
#define EBB_APPS_BENCH_REPORT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/common/options/options.h"
#include "ebb/benchmark.h"
#include "ebb/engine.h"
#include "ebb/report.h"
#include "ebb/status.h"

namespace ebb::cli {

using Json = nlohmann::ordered_json;

// Returns {"median": ..., "min": ..., "max": ...}.
[[nodiscard]] Json ToJson(const Spread& spread);
// Returns a text such as "44.1 (43.0 - 45.2)": the median, the minimum and the maximum.
[[nodiscard]] std::string ToText(const Spread& spread);

// Returns "AMD EPYC, 2 cores", with ", quota 1.5" appended if a control group limits the processor
// time. Counts only cores in the affinity mask.
[[nodiscard]] std::string MachineName();
// Returns the resident memory of this process in bytes.
[[nodiscard]] uint64_t ResidentBytes();

// MachineWatch measures how busy other processes keep the cpus of the affinity mask. Measured
// speeds mean nothing if threads had to wait for a core.
class MachineWatch {
 public:
  MachineWatch();
  // Returns other processes' share of these cpus' time since construction, from 0 to 1; 0 if the
  // system does not report it.
  [[nodiscard]] double OthersShare() const;

 private:
  std::vector<int> cpus_;
  double busy_seconds_;
  double own_seconds_;
  double uptime_seconds_;
};
// Writes to stderr that the figures are unreliable if others_share exceeds 3 %.
void WarnOfOthers(double others_share);

// Appends to *record the fields policy, policy_options (as requested), model, kv_type, threads,
// kernel and machine.
void AddEngineFields(const CliOptions& options, const Engine& engine, const Session& session,
                     Json* record);

// Returns every option of the policy that was given explicitly.
[[nodiscard]] Json PolicyOptions(const PolicySpec& spec);

// Returns the statistics of selective reading of T1: the field `selection` of JSON records.
[[nodiscard]] Json SelectionRecord(const SelectionAccounting& selection);
// Returns what selective reading of T1 did, in words: the shares of the rows and of the attention,
// and the bytes read from T1.
[[nodiscard]] std::string SelectionText(const SelectionAccounting& selection);

// Returns how many tokens have so many rows in a model of that shape, rounded. A token has one row
// for each layer and kv head.
[[nodiscard]] int64_t InTokens(int64_t rows, const ModelShape& shape);

// Writes `record` to stdout with --json, else `text`. Errors: stdout cannot be written.
[[nodiscard]] Status WriteRecord(const CliOptions& options, const Json& record,
                                 std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_REPORT_H_
