#include "src/device/device.h"

#include <cstring>

namespace ebb {

Status Device::ReadRows(std::span<const std::byte* const> rows, size_t num_bytes, std::byte* to) {
  const DeviceCall call(this);
  for (const std::byte* row : rows) {
    std::memcpy(to, row, num_bytes);
    to += num_bytes;
  }
  return OkStatus();
}

Status Device::WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                         const std::byte* from) {
  const DeviceCall call(this);
  for (std::byte* row : rows) {
    std::memcpy(row, from, num_bytes);
    from += num_bytes;
  }
  return OkStatus();
}

Status Device::CopyRows(std::span<const CopyPart> rows) {
  const DeviceCall call(this);
  for (const CopyPart& row : rows) std::memcpy(row.to, row.from, row.num_bytes);
  return OkStatus();
}

}  // namespace ebb
