// The part of a report that all measurements share, and how reports are written: a line of JSON or
// a line for people, on stdout.
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

// {"median": ..., "min": ..., "max": ...}
[[nodiscard]] Json ToJson(const Spread& spread);
// "44.1 (43.0 - 45.2)"
[[nodiscard]] std::string ToText(const Spread& spread);

// "AMD EPYC, 2 cores", and where a control group limits the processor time ", quota 1.5". Cores
// outside the affinity mask are not counted.
[[nodiscard]] std::string MachineName();
// Resident now.
[[nodiscard]] uint64_t ResidentBytes();

// How busy other processes kept the cpus of the affinity mask while something was measured: figures
// of threads that had to wait for a core mean nothing.
class MachineWatch {
 public:
  MachineWatch();
  // Their share of these cpus' time since the start; 0 where the system does not tell.
  [[nodiscard]] double OthersShare() const;

 private:
  std::vector<int> cpus_;
  double busy_seconds_;
  double own_seconds_;
  double uptime_seconds_;
};
// Says on stderr that the figures are not to be trusted, when the share is above 3 %.
void WarnOfOthers(double others_share);

// policy, policy_options (what was asked for), model, kv_type, threads, kernel, machine: appended
// to `record`.
void AddEngineFields(const CliOptions& options, const Engine& engine, const Session& session,
                     Json* record);

// Every option of a policy that was given.
[[nodiscard]] Json PolicyOptions(const PolicySpec& spec);

// Returns what selective reading of T1 did: the field `selection` of JSON records.
[[nodiscard]] Json SelectionRecord(const SelectionAccounting& selection);
// Returns the shares of the rows and of the attention, and the bytes read from T1, in words.
[[nodiscard]] std::string SelectionText(const SelectionAccounting& selection);

// The record with --json, else the text. Errors: stdout cannot be written.
[[nodiscard]] Status WriteRecord(const CliOptions& options, const Json& record,
                                 std::string_view text);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_REPORT_H_
