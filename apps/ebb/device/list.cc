// Implements `ebb device list`: the devices that --device accepts on this machine.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "apps/common/help.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/terminal/wrap.h"
#include "apps/ebb/device/commands.h"
#include "ebb/device.h"

namespace ebb::cli {
namespace {

std::string Gigabytes(uint64_t bytes) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
}

// kNoCard tells how ebb finds a card, and on which cards of each maker it has run.
constexpr std::string_view kNoCard =
    "No graphics card: this program was built without a backend for one, or found none. Build with "
    "-DEBB_BACKENDS=cuda for NVIDIA, vulkan for AMD and Intel (not tested on a card), as "
    "docs/user/gpu.md says; then `ebb device test --device vulkan` tells whether the card works.";

Status PrintDevices(const CliOptions& options) {
  bool has_card = false;
  Json records = {{{"name", "cpu"}, {"description", "this machine; one memory for all tiers"}}};
  for (const DeviceDescription& device : ListDevices()) {
    Json record = {{"name", device.name}, {"description", device.description}};
    if (!device.driver.empty()) record["driver"] = device.driver;
    record["tested"] = device.tested;
    if (device.total_bytes > 0) {
      record["free_bytes"] = device.free_bytes;
      record["total_bytes"] = device.total_bytes;
    }
    has_card = has_card || !device.name.starts_with("ggml-");
    records.push_back(std::move(record));
  }
  std::string text;
  for (const Json& record : records) {
    std::string line = fmt::format("{:10}  {}", record["name"].get<std::string>(),
                                   record["description"].get<std::string>());
    if (record.contains("total_bytes")) {
      line += fmt::format("; {} of {} free", Gigabytes(record["free_bytes"]),
                          Gigabytes(record["total_bytes"]));
    }
    if (record.contains("driver")) {
      line += fmt::format("; driver {}", record["driver"].get<std::string>());
    }
    if (record.contains("tested")) {
      line += fmt::format("; tested: {}", record["tested"].get<std::string>());
    }
    text += (text.empty() ? "" : "\n") + Wrapped(line, 12, HelpColumns());
  }
  if (!has_card) text += "\n\n" + Wrapped(kNoCard, 0, HelpColumns());
  return WriteRecord(options, {{"devices", records}}, text);
}

}  // namespace

ExitCode RunDeviceList(const CliOptions& options) {
  const Status status = PrintDevices(options);
  return status.ok() ? ExitCode::kOk : Fail(status);
}

}  // namespace ebb::cli
