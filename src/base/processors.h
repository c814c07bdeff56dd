// Declares the parts of AvailableProcessors() and AllowedCpus() (ebb/device.h) that tests call with
// a simulated machine.
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

// ReadAffinity writes the affinity mask to `mask`, which has `bytes` bytes. It returns 0 or an
// errno: EINVAL if the kernel's mask is longer.
using ReadAffinity = std::function<int(size_t bytes, cpu_set_t* mask)>;

// Returns the numbers of the cpus in the mask, ascending; of all online cpus if the mask cannot be
// read.
[[nodiscard]] std::vector<int> CpusInMask(const ReadAffinity& read);

// Counts the cores and threads among these cpus, and finds the CPU quota, from files below `root`:
// /sys/devices/system/cpu, /proc and the mounted control groups.
[[nodiscard]] Processors CountProcessors(std::span<const int> cpus, const std::string& root = "/");

}  // namespace ebb

#endif  // EBB_BASE_PROCESSORS_H_
