// What the system says that this process takes.
#ifndef EBB_TESTS_SUPPORT_PROCESS_MEMORY_H_
#define EBB_TESTS_SUPPORT_PROCESS_MEMORY_H_

#include <cstddef>

namespace ebb {

struct ProcessMemory {
  size_t virtual_bytes = 0;
  size_t resident_bytes = 0;
};
[[nodiscard]] ProcessMemory MeasureProcess();

// Whether the system refuses memory beyond RLIMIT_AS; qemu-user does not. Tests of such refusals
// are skipped without it: EBB_SKIP_WITHOUT("memory_limits").
[[nodiscard]] bool MemoryLimitsHold();

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_PROCESS_MEMORY_H_
