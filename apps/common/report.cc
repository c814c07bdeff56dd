#include "apps/common/report.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "apps/common/terminal/output.h"
#include "apps/common/terminal/say.h"
#include "ebb/device.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Returns the processor time of this process and of the children that it has waited for.
double OwnSeconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    seconds += Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  return seconds;
}

// Returns the time that these cpus together were busy since the system started, with any process.
// Time that the hypervisor took away counts as busy.
double BusySeconds(const std::vector<int>& cpus) {
  std::set<std::string> names;
  for (const int cpu : cpus) names.insert("cpu" + std::to_string(cpu));
  std::ifstream file("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, io_wait = 0, irq = 0, soft_irq = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> io_wait >> irq >> soft_irq >> steal;
    if (names.contains(name)) ticks += user + nice + system + irq + soft_irq + steal;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double UptimeSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Json PolicyOptions(const PolicySpec& spec) {
  Json options = Json::object();
  for (const auto& [key, value] : spec.params) options[key] = value;
  if (!spec.scorer.empty()) options["scorer"] = spec.scorer;
  if (spec.budget.unit != Budget::Unit::kNone) options["budget"] = FormatBudget(spec.budget);
  if (spec.sinks) options["sinks"] = *spec.sinks;
  if (spec.window) options["window"] = *spec.window;
  if (spec.interval) options["interval"] = *spec.interval;
  if (spec.granularity) options["granularity"] = GranularityName(*spec.granularity);
  return options;
}

Json ToJson(const Spread& spread) {
  return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
}

std::string ToText(const Spread& spread) {
  return fmt::format("{:.4g} ({:.4g} - {:.4g})", spread.median, spread.min, spread.max);
}

std::string MachineName() {
  std::ifstream file("/proc/cpuinfo");
  std::string name = "unknown processor";
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kKey = "model name";
    const size_t colon = line.find(": ");
    if (line.starts_with(kKey) && colon != std::string::npos) {
      name = line.substr(colon + 2);
      break;
    }
  }
  const Processors processors = AvailableProcessors();
  std::string text =
      fmt::format("{}, {} core{}", name, processors.cores, processors.cores == 1 ? "" : "s");
  if (processors.quota > 0) text += fmt::format(", quota {:.3g}", processors.quota);
  return text;
}

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total_pages = 0, resident_pages = 0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

MachineWatch::MachineWatch()
    : cpus_(AllowedCpus()),
      busy_seconds_(BusySeconds(cpus_)),
      own_seconds_(OwnSeconds()),
      uptime_seconds_(UptimeSeconds()) {}

double MachineWatch::OthersShare() const {
  const double others = (BusySeconds(cpus_) - busy_seconds_) - (OwnSeconds() - own_seconds_);
  const double all = (UptimeSeconds() - uptime_seconds_) * static_cast<double>(cpus_.size());
  return all > 0 ? std::clamp(others / all, 0.0, 1.0) : 0;
}

void WarnOfOthers(double others_share) {
  constexpr double kTolerated = 0.03;
  if (others_share <= kTolerated) return;
  Say("ebb: warning: other processes took {:.0f} % of the processor time; measure "
      "again on an idle machine\n",
      others_share * 100);
}

void AddEngineFields(const CliOptions& options, const Engine& engine, const Session& session,
                     Json* record) {
  record->update({{"policy", session.policy().name},
                  {"policy_options", PolicyOptions(options.session.policy)},
                  {"kv_type", RowTypeName(engine.options().kv_type)},
                  {"model", engine.model().description()},
                  {"threads", engine.options().threads},
                  {"kernel", engine.attention_name()},
                  {"machine", MachineName()}});
  const DeviceReport device = engine.device_report();
  if (device.decode_steps == 0) return;  // the processor, or no step
  const auto steps = static_cast<double>(device.decode_steps);
  record->update({{"device", device.name},
                  {"t1_mode", T1ModeName(device.t1_mode)},
                  {"device_step_s", device.decode_seconds / steps}});
  (*record)["device_row_bytes"] = device.row_bytes;
  (*record)["device_weight_bytes"] = device.weight_bytes;
}

Json SelectionRecord(const SelectionAccounting& selection) {
  return {{"rows_read_share", selection.ReadShare()},
          {"unread_mass", selection.unread_mass},
          {"sampled_unread_mass", selection.sampled_unread_mass},
          {"samples", selection.num_samples},
          {"pages_cached", selection.pages_cached},
          {"pages_read", selection.pages_read},
          {"bytes_read", selection.bytes_read},
          {"wait_seconds", selection.wait_seconds}};
}

std::string SelectionText(const SelectionAccounting& selection) {
  const auto pages =
      static_cast<double>(std::max<int64_t>(1, selection.pages_cached + selection.pages_read));
  std::string text =
      fmt::format("{:.0f} % of the rows; {:.1f} % of the attention unread by estimate",
                  100 * selection.ReadShare(), 100 * selection.unread_mass);
  if (selection.num_samples > 0) {
    text += fmt::format(", {:.1f} % in {} samples", 100 * selection.sampled_unread_mass,
                        selection.num_samples);
  }
  return text + fmt::format("; {} read from T1, {:.0f} % of its pages were cached",
                            SizeText(static_cast<double>(selection.bytes_read)),
                            100.0 * static_cast<double>(selection.pages_cached) / pages);
}

int64_t InTokens(int64_t rows, const ModelShape& shape) {
  const int streams = std::max(1, shape.NumStreams());
  return (rows + streams / 2) / streams;
}

Status WriteRecord(const CliOptions& options, const Json& record, std::string_view text) {
  const std::string line = options.json
                               ? record.dump(-1, ' ', false, Json::error_handler_t::replace)
                               : std::string(text);
  return WriteTextToStdout(line + "\n");
}

}  // namespace ebb::cli
