// Maps host memory in whole huge pages, for extents of an arena and for staging buffers.
#ifndef EBB_DEVICE_HOST_MEMORY_H_
#define EBB_DEVICE_HOST_MEMORY_H_

#include <cstddef>

#include "ebb/status.h"

namespace ebb {

// Maps `num_bytes` bytes of zeros, aligned to kDeviceMemoryStep. Errors: OutOfMemory; its message
// is just the system's reason.
[[nodiscard]] Result<std::byte*> MapHostMemory(size_t num_bytes);
[[nodiscard]] Status UnmapHostMemory(std::byte* memory, size_t num_bytes);

}  // namespace ebb

#endif  // EBB_DEVICE_HOST_MEMORY_H_
