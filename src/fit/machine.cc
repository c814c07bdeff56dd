// Measures the machine: the speed and free space of a disk, and the free memory.
#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "ebb/fit.h"
#include "src/base/cgroup_limits.h"
#include "src/io/benchmark_io.h"
#include "src/io/private_file.h"

namespace ebb {

Result<double> MeasureDiskRead(const std::string& folder) {
  constexpr int kPasses = 3;
  EBB_ASSIGN_OR_RETURN(const auto benchmark,
                       ReadBenchmark::Create({.folder = folder, .file_bytes = size_t{64} << 20}));
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    EBB_ASSIGN_OR_RETURN(const ReadSpeed speed, benchmark->Run());
    best = std::max(best, speed.GigabytesPerSecond());
  }
  return best;
}

Result<uint64_t> FreeDiskBytes(const std::string& folder) {
  const std::string path = folder.empty() ? DefaultFolder() : folder;
  struct statvfs info = {};
  if (statvfs(path.c_str(), &info) != 0) {
    return IoError(fmt::format("cannot tell the room in {}: {}", path,
                               std::generic_category().message(errno)));
  }
  return uint64_t{info.f_bavail} * info.f_frsize;
}

Result<uint64_t> AvailableMemoryBytes() {
  if (const auto bytes = AvailableMemory()) return *bytes;
  return Unsupported("the system does not say how much memory is available");
}

}  // namespace ebb
