// Reads how much processor time and memory Linux's control groups allow this process.
#ifndef EBB_BASE_CGROUP_LIMITS_H_
#define EBB_BASE_CGROUP_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ebb {

// Returns the smallest CPU quota of the process's own control group and of all groups above it that
// are mounted, in processors: 1.5 is 1.5 s of processor time a second. 0: no limit, or none that
// can be read. Reads both versions of control groups, since a system may mount the two side by side
// and either may have the `cpu` controller.
//
// `root` is the folder that holds /proc and the mount points: "/", except in tests.
[[nodiscard]] double CgroupQuota(const std::string& root);

// Returns the bytes that the process may still allocate before it reaches the nearest memory limit
// of these groups. Counts memory that the kernel can reclaim as free, by the rule of MemAvailable
// in /proc/meminfo: file pages, used lately or not, and reclaimable slab, each less a low
// watermark. Nothing: no limit, or none that can be read.
[[nodiscard]] std::optional<uint64_t> CgroupMemoryLeft(const std::string& root);

// Returns the bytes that the process may allocate without swapping: MemAvailable of /proc/meminfo,
// or CgroupMemoryLeft("/") if that is less. Nothing: the system does not say.
[[nodiscard]] std::optional<uint64_t> AvailableMemory();

}  // namespace ebb

#endif  // EBB_BASE_CGROUP_LIMITS_H_
