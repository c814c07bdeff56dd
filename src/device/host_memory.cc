#include "src/device/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "src/device/device.h"

namespace ebb {
namespace {

std::byte* Map(size_t num_bytes) {
  void* mapped =
      mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

bool Unmap(std::byte* base, size_t num_bytes) {
  return num_bytes == 0 || munmap(base, num_bytes) == 0;
}

size_t BytesToAlignment(const std::byte* address) {
  return -reinterpret_cast<uintptr_t>(address) & (kDeviceMemoryStep - 1);
}

// Returns memory aligned to kDeviceMemoryStep, or null with errno set.
std::byte* MapAligned(size_t num_bytes) {
  std::byte* base = Map(num_bytes);
  if (base == nullptr) return nullptr;
  if (BytesToAlignment(base) != 0) {
    // Map one step more, which always contains an aligned range, and unmap the rest before it is
    // touched.
    if (!Unmap(base, num_bytes)) return nullptr;
    base = Map(num_bytes + kDeviceMemoryStep);
    if (base == nullptr) return nullptr;
    const size_t head_bytes = BytesToAlignment(base);
    std::byte* aligned = base + head_bytes;
    if (!Unmap(aligned + num_bytes, kDeviceMemoryStep - head_bytes)) {
      Unmap(base, num_bytes + kDeviceMemoryStep);
      return nullptr;
    }
    if (!Unmap(base, head_bytes)) {
      Unmap(base, head_bytes + num_bytes);
      return nullptr;
    }
    base = aligned;
  }
  // Ignore errors: kernels without huge pages refuse the hint, and only speed depends on it.
  madvise(base, num_bytes, MADV_HUGEPAGE);
  return base;
}

}  // namespace

Result<std::byte*> MapHostMemory(size_t num_bytes) {
  std::byte* memory = MapAligned(num_bytes);
  if (memory == nullptr) return OutOfMemory(std::generic_category().message(errno));
  return memory;
}

Status UnmapHostMemory(std::byte* memory, size_t num_bytes) {
  if (Unmap(memory, num_bytes)) return OkStatus();
  return OutOfMemory(std::generic_category().message(errno));
}

}  // namespace ebb
