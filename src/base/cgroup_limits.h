// Reads the limits of processor time and memory that Linux's control groups set for this process.
#ifndef EBB_BASE_CGROUP_LIMITS_H_
#define EBB_BASE_CGROUP_LIMITS_H_

#include <cstdint>
#include <optional>
#include <string>

namespace ebb {

// Returns the smallest CPU quota of the process's control group and of all groups above it that are
// mounted, in processors: 1.5 means 1.5 s of processor time per second. 0: no limit, or it cannot
// be read. Reads both versions of control groups, because a system may mount both and either may
// have the `cpu` controller.
//
// `root` is the folder that contains /proc and the mount points: "/", except in tests.
[[nodiscard]] double CgroupQuota(const std::string& root);

// Returns how many bytes the process may still allocate before it reaches the nearest memory limit
// of its control groups; nullopt: no limit, or it cannot be read. Memory that the kernel can
// reclaim counts as free, by the rule of MemAvailable in /proc/meminfo: file pages and reclaimable
// slab, each less a low watermark.
[[nodiscard]] std::optional<uint64_t> CgroupMemoryLeft(const std::string& root);

// Returns how many bytes the process may allocate without swapping: MemAvailable of /proc/meminfo,
// or CgroupMemoryLeft("/") if that is less. nullopt: the system does not say.
[[nodiscard]] std::optional<uint64_t> AvailableMemory();

}  // namespace ebb

#endif  // EBB_BASE_CGROUP_LIMITS_H_
