// DeviceBlock owns a range of a device's memory or of pinned memory, and frees it when it is
// destroyed.
#ifndef EBB_DEVICE_DEVICE_BLOCK_H_
#define EBB_DEVICE_DEVICE_BLOCK_H_

#include <cstddef>
#include <utility>

#include "ebb/status.h"
#include "src/device/device.h"

namespace ebb {

class DeviceBlock {
 public:
  DeviceBlock() = default;  // owns nothing
  // Allocates at least `num_bytes` bytes. Errors: OutOfMemory.
  static Result<DeviceBlock> Allocate(Device* device, MemoryKind kind, size_t num_bytes) {
    const size_t size = (num_bytes + kDeviceMemoryStep - 1) / kDeviceMemoryStep * kDeviceMemoryStep;
    EBB_ASSIGN_OR_RETURN(std::byte* const data, device->Allocate(kind, size));
    DeviceBlock block;
    block.device_ = device;
    block.kind_ = kind;
    block.data_ = data;
    block.size_ = size;
    return block;
  }
  DeviceBlock(DeviceBlock&& other) noexcept { *this = std::move(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(kind_, other.kind_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceBlock() {
    if (data_ != nullptr) (void)device_->Free(kind_, data_, size_);
  }

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  Device* device_ = nullptr;
  MemoryKind kind_ = MemoryKind::kDevice;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace ebb

#endif  // EBB_DEVICE_DEVICE_BLOCK_H_
