// Declares the parts of AvailableProcessors() and AllowedCpus() (ebb/device.h) that tests run on a
// simulated machine.
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

// ReadAffinity writes the affinity mask to `mask`, which has room for `bytes` bytes. It returns 0
// or an error number: EINVAL if the kernel's mask is longer.
using ReadAffinity = std::function<int(size_t bytes, cpu_set_t* mask)>;

// Returns the numbers of the cpus in the mask, ascending; the numbers of all online cpus if the
// mask cannot be read.
[[nodiscard]] std::vector<int> CpusInMask(const ReadAffinity& read);

// Counts the processors among these cpus by the files below `root`: /sys/devices/system/cpu for the
// cores, /proc and the mounted control groups for the quota.
[[nodiscard]] Processors CountProcessors(std::span<const int> cpus, const std::string& root = "/");

}  // namespace ebb

#endif  // EBB_BASE_PROCESSORS_H_
