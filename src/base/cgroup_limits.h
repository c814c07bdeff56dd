// How much processor time and memory Linux's control groups allow this process.
#ifndef EBB_BASE_CGROUP_LIMITS_H_
#define EBB_BASE_CGROUP_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ebb {

// The smallest CPU quota of the process's own control group and of all groups above it that are
// mounted, in processors: 1.5 is 1.5 s of processor time a second. 0: no limit, or none that can be
// read. Both versions of control groups are asked, since a system may mount the two side by side
// and either may have the `cpu` controller.
//
// `root` is the folder in which /proc and the mount points are looked for: "/", but for tests.
[[nodiscard]] double CgroupQuota(const std::string& root);

// Bytes that the process may still take before the nearest memory limit of these groups is reached.
// Memory that the kernel can take back counts as free, by the rule of MemAvailable in
// /proc/meminfo: file pages, used lately or not, and reclaimable slab, each less a low watermark.
// Nothing: no limit, or none that can be read.
[[nodiscard]] std::optional<uint64_t> CgroupMemoryLeft(const std::string& root);

// Bytes that the process may take without swapping: MemAvailable of /proc/meminfo, or
// CgroupMemoryLeft("/") where that is less. Nothing: the system does not say.
[[nodiscard]] std::optional<uint64_t> AvailableMemory();

}  // namespace ebb

#endif  // EBB_BASE_CGROUP_LIMITS_H_
