#include "src/device/device.h"

namespace ebb {

Result<std::byte*> Device::Staging(size_t num_bytes) {
  if (num_bytes <= staging_bytes_) return staging_;
  if (staging_ != nullptr) {
    EBB_RETURN_IF_ERROR(Free(MemoryKind::kPinned, staging_, staging_bytes_));
    staging_ = nullptr;
    staging_bytes_ = 0;
  }
  const size_t wanted = (num_bytes + kDeviceMemoryStep - 1) / kDeviceMemoryStep * kDeviceMemoryStep;
  EBB_ASSIGN_OR_RETURN(staging_, Allocate(MemoryKind::kPinned, wanted));
  staging_bytes_ = wanted;
  return staging_;
}

}  // namespace ebb
