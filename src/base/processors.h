// The parts of ebb/device.h that tests give a simulated machine.
#ifndef EBB_BASE_PROCESSORS_H_
#define EBB_BASE_PROCESSORS_H_

#include <sched.h>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ebb/device.h"

namespace ebb {

// Writes the affinity mask to `mask`, which has room for `bytes`. Returns 0, or an error number:
// EINVAL when the kernel's mask is longer.
using ReadAffinity = std::function<int(size_t bytes, cpu_set_t* mask)>;

// The numbers in the mask, ascending. When it cannot be read: those of all cpus that are online.
[[nodiscard]] std::vector<int> CpusInMask(const ReadAffinity& read);

// What these cpus and the files below `root` come to: /sys/devices/system/cpu for the cores, /proc
// and the mounted control groups for the quota.
[[nodiscard]] Processors CountProcessors(std::span<const int> cpus, const std::string& root = "/");

}  // namespace ebb

#endif  // EBB_BASE_PROCESSORS_H_
