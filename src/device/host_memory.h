// Memory of the host in whole huge pages, as extents of an arena and staging buffers want it.
#ifndef EBB_DEVICE_HOST_MEMORY_H_
#define EBB_DEVICE_HOST_MEMORY_H_

#include <cstddef>

#include "ebb/status.h"

namespace ebb {

// Zeros, aligned to kDeviceMemoryStep. OutOfMemory, with the system's reason alone, when it
// has no more.
[[nodiscard]] Result<std::byte*> MapHostMemory(size_t num_bytes);
[[nodiscard]] Status UnmapHostMemory(std::byte* memory, size_t num_bytes);

}  // namespace ebb

#endif  // EBB_DEVICE_HOST_MEMORY_H_
