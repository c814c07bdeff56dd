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

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_PROCESS_MEMORY_H_
