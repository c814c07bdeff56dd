#include "src/cli/timeline.h"

#include <fmt/format.h>

#include <fstream>

#include "src/cli/output.h"

namespace ebb::cli {
Status CheckTimeline(const CliOptions& options) {
  if (options.timeline_file.empty()) return OkStatus();
  if (options.engine.device.kind == DeviceKind::kCpu) {
    return InvalidArgument("--timeline: only a simulated device keeps one; add --device sim");
  }
  return CheckWritable(options.timeline_file);
}

Status WriteTimeline(const CliOptions& options, const Engine& engine) {
  if (options.timeline_file.empty()) return OkStatus();
  std::ofstream file(options.timeline_file, std::ios::binary);
  file << engine.TimelineJson() << std::flush;
  return file ? OkStatus() : IoError(fmt::format("cannot write {}", options.timeline_file));
}

}  // namespace ebb::cli
