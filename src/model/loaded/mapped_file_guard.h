// Declares the process's handler of SIGBUS for mapped files: see mapped_file.h.
#ifndef EBB_MODEL_LOADED_MAPPED_FILE_GUARD_H_
#define EBB_MODEL_LOADED_MAPPED_FILE_GUARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ebb {

struct GuardedRange {
  std::atomic<uintptr_t> begin{0};  // 0: free
  std::atomic<size_t> num_bytes{0};
  std::atomic<bool> is_lost{false};  // a touch failed, and zeros stand there now
  GuardedRange* next = nullptr;      // never changes once the range is in the list
};

// Guards a mapping: returns a range that the SIGBUS handler knows. The first call installs the
// handler. Several threads may call it at once.
[[nodiscard]] GuardedRange* Guard(std::span<const std::byte> mapping);
// Ends the guard. Must be called before the mapping ends.
void EndGuard(GuardedRange* range);

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_MAPPED_FILE_GUARD_H_
