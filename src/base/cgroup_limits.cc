// Reads the limits of Linux control groups. File formats: cgroups(7), proc_pid_mountinfo(5), and
// Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst of Linux.
#include "src/base/cgroup_limits.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace ebb {
namespace {

namespace fs = std::filesystem;

enum class Version { kV1, kV2 };

struct Mount {
  std::string group;  // group at the mount point: "/", or a container's own
  fs::path point;
};

fs::path Under(const std::string& root, const fs::path& path) {
  return fs::path(root) / path.relative_path();
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Source is a version of control groups and one of its controllers, "cpu" or "memory".
struct Source {
  Version version;
  std::string_view controller;
};

bool HasController(const std::string& comma_separated, std::string_view controller) {
  std::istringstream stream(comma_separated);
  for (std::string name; std::getline(stream, name, ',');) {
    if (name == controller) return true;
  }
  return false;
}

// Replaces the escapes in mountinfo, where blanks, tabs, newlines and backslashes are a backslash
// with three octal digits.
std::string Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && text.size() - i > 3 &&
        std::from_chars(digits, digits + 3, code, 8).ptr == digits + 3) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// Parses a line of mountinfo, such as "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:7 -
// cgroup cgroup rw,cpu": the fourth word is the group, the fifth the mount point; optional words
// precede the dash. Returns nullopt for a mount without the source's controller.
std::optional<Mount> ParseMount(const std::string& line, const Source& source) {
  const std::vector<std::string> words = Words(line);
  const auto dash = std::ranges::find(words, "-");
  if (dash - words.begin() < 6 || words.end() - dash < 4) return std::nullopt;
  const std::string &type = dash[1], &options = dash[3];
  const bool wanted = source.version == Version::kV2
                          ? type == "cgroup2"
                          : type == "cgroup" && HasController(options, source.controller);
  if (!wanted) return std::nullopt;
  return Mount{.group = Unescaped(words[3]), .point = Unescaped(words[4])};
}

std::vector<Mount> ReadMounts(const std::string& root, const Source& source) {
  std::ifstream file(Under(root, "proc/self/mountinfo"));
  std::vector<Mount> mounts;
  for (std::string line; std::getline(file, line);) {
    if (std::optional<Mount> mount = ParseMount(line, source)) mounts.push_back(*mount);
  }
  return mounts;
}

// Returns the process's own group from /proc/self/cgroup: "/a/b" of "0::/a/b" in version 2 or of
// "4:cpu,cpuacct:/a/b" in version 1. A path may contain colons.
std::optional<std::string> ReadGroup(const std::string& root, const Source& source) {
  std::ifstream file(Under(root, "proc/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool wanted = source.version == Version::kV2
                            ? line.starts_with("0::")
                            : HasController(controllers, source.controller);
    if (wanted) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Returns the folders of `group` and of the groups above it that the mount shows, the mount point
// first; empty if the mount does not show the group.
std::vector<fs::path> FoldersOf(const std::string& root, const Mount& mount,
                                const std::string& group) {
  const fs::path below = fs::path(group).lexically_relative(mount.group);
  if (below.empty() || *below.begin() == "..") return {};
  fs::path folder = Under(root, mount.point);
  std::vector<fs::path> folders = {folder};
  for (const fs::path& name : below) {
    if (name != ".") folders.push_back(folder /= name);
  }
  std::error_code error;
  return fs::is_directory(folder, error) ? folders : std::vector<fs::path>();
}

std::optional<double> PositiveNumber(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number <= 0) return std::nullopt;
  return static_cast<double>(number);
}

// Returns the words of the file's first line; none if the file cannot be read.
std::vector<std::string> ReadWords(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return Words(line);
}

// Returns the CPU limit as two words: quota and period in microseconds. Without a limit the quota
// is "max" in version 2 and -1 in version 1.
std::vector<std::string> ReadLimit(const fs::path& folder, Version version) {
  if (version == Version::kV2) return ReadWords(folder / "cpu.max");
  std::vector<std::string> limit = ReadWords(folder / "cpu.cfs_quota_us");
  for (std::string& word : ReadWords(folder / "cpu.cfs_period_us")) {
    limit.push_back(std::move(word));
  }
  return limit;
}

std::optional<double> QuotaOf(const fs::path& folder, Version version) {
  const std::vector<std::string> limit = ReadLimit(folder, version);
  if (limit.size() != 2) return std::nullopt;
  const std::optional<double> quota = PositiveNumber(limit[0]), period = PositiveNumber(limit[1]);
  if (!quota.has_value() || !period.has_value()) return std::nullopt;
  return *quota / *period;
}

std::optional<uint64_t> BytesIn(const fs::path& path) {
  const std::vector<std::string> words = ReadWords(path);
  if (words.size() != 1) return std::nullopt;
  uint64_t bytes = 0;
  const char* end = words[0].data() + words[0].size();
  const auto [stop, error] = std::from_chars(words[0].data(), end, bytes);
  if (error != std::errc() || stop != end) return std::nullopt;  // "max": there is no limit
  return bytes;
}

// ReclaimableBytes is the memory in a group's memory.stat that the kernel can reclaim.
struct ReclaimableBytes {
  uint64_t file = 0;  // pages on the file LRU lists; no shmem, no mlocked pages
  uint64_t slab = 0;  // kernel caches; unknown in version 1
};

ReclaimableBytes ReadReclaimable(const fs::path& folder, Version version) {
  // Version 1 needs the prefix "total_": without it, groups below this one are not counted.
  const std::string_view prefix = version == Version::kV2 ? "" : "total_";
  ReclaimableBytes reclaimable;
  std::ifstream file(folder / "memory.stat");
  std::string name;
  for (uint64_t bytes = 0; file >> name >> bytes;) {
    std::string_view kind = name;
    if (!kind.starts_with(prefix)) continue;
    kind.remove_prefix(prefix.size());
    if (kind == "active_file" || kind == "inactive_file") reclaimable.file += bytes;
    if (kind == "slab_reclaimable") reclaimable.slab += bytes;
  }
  return reclaimable;
}

// Returns the low watermark that the kernel would set on a machine with `limit` bytes of memory
// (calculate_min_free_kbytes() and __setup_per_zone_wmarks() in mm/page_alloc.c). Groups have no
// watermark of their own.
uint64_t LowWatermark(uint64_t limit) {
  constexpr double kMinKib = 128, kMaxKib = 262144;
  const double min_free_kib =
      std::clamp(std::sqrt(static_cast<double>(limit) / 1024 * 16), kMinKib, kMaxKib);
  return static_cast<uint64_t>(min_free_kib * 1.25 * 1024);
}

// Returns how many of `bytes` reclaimable bytes count as available, by the rule of MemAvailable
// (si_mem_available() in mm/show_mem.c). The rest must stay in memory; otherwise the machine swaps
// or reads its files again and again.
uint64_t AvailableOf(uint64_t bytes, uint64_t low_watermark) {
  return bytes - std::min(bytes / 2, low_watermark);
}

// Returns how many bytes the group may still use below its memory limit; nullopt: no limit, or it
// cannot be read.
std::optional<uint64_t> MemoryLeftIn(const fs::path& folder, Version version) {
  const bool is_v2 = version == Version::kV2;
  const auto limit = BytesIn(folder / (is_v2 ? "memory.max" : "memory.limit_in_bytes"));
  const auto used = BytesIn(folder / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const ReclaimableBytes reclaimable = ReadReclaimable(folder, version);
  const uint64_t low = LowWatermark(*limit);
  const uint64_t available =
      AvailableOf(reclaimable.file, low) + AvailableOf(reclaimable.slab, low);
  const uint64_t taken = *used - std::min(*used, available);
  return *limit - std::min(*limit, taken);
}

// Returns the folders of all groups that may limit this process.
std::vector<fs::path> LimitingFolders(const std::string& root, const Source& source) {
  const std::vector<Mount> mounts = ReadMounts(root, source);
  const std::optional<std::string> group = ReadGroup(root, source);
  if (mounts.empty() || !group.has_value()) return {};
  std::vector<fs::path> folders;
  for (const Mount& mount : mounts) {
    const std::vector<fs::path> more = FoldersOf(root, mount, *group);
    folders.insert(folders.end(), more.begin(), more.end());
  }
  // In a container, the mount point may show the process's own group, while the path is that
  // outside of the container. Only the first mount is used then, because other mounts may show
  // other groups.
  if (folders.empty()) folders.push_back(Under(root, mounts.front().point));
  return folders;
}

// Returns the smallest limit that `read` finds in the folders; nullopt: none has a limit.
template <typename Number>
std::optional<Number> Least(const std::string& root, std::string_view controller,
                            std::optional<Number> (*read)(const fs::path& folder, Version)) {
  std::optional<Number> least;
  for (const Version version : {Version::kV1, Version::kV2}) {
    for (const fs::path& folder : LimitingFolders(root, {version, controller})) {
      const std::optional<Number> limit = read(folder, version);
      if (limit.has_value() && (!least.has_value() || *limit < *least)) least = limit;
    }
  }
  return least;
}

}  // namespace

double CgroupQuota(const std::string& root) { return Least(root, "cpu", QuotaOf).value_or(0); }

std::optional<uint64_t> CgroupMemoryLeft(const std::string& root) {
  return Least(root, "memory", MemoryLeftIn);
}

std::optional<uint64_t> AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  uint64_t kib = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("MemAvailable:")) continue;
    kib = std::strtoull(line.c_str() + sizeof("MemAvailable:") - 1, nullptr, 10);
  }
  if (kib == 0) return std::nullopt;
  // Without a limit this is right too: version 1 of control groups then reports one near 2^63.
  return std::min(kib * 1024, CgroupMemoryLeft("/").value_or(kib * 1024));
}

}  // namespace ebb
