#include "src/cli/timeline.h"

#include <fmt/format.h>

#include <fstream>
#include <string_view>

namespace ebb::cli {
namespace {

Status Write(const std::string& path, std::string_view text, std::ios::openmode mode) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text << std::flush;
  return file ? OkStatus() : IoError(fmt::format("cannot write {}", path));
}

}  // namespace

Status CheckTimeline(const CliOptions& options) {
  if (options.timeline_file.empty()) return OkStatus();
  if (options.engine.device.kind == DeviceKind::kCpu) {
    return InvalidArgument("--timeline: only a simulated device keeps one; add --device sim");
  }
  return Write(options.timeline_file, "", std::ios::app);
}

Status WriteTimeline(const CliOptions& options, const Engine& engine) {
  if (options.timeline_file.empty()) return OkStatus();
  return Write(options.timeline_file, engine.TimelineJson(), std::ios::trunc);
}

}  // namespace ebb::cli
