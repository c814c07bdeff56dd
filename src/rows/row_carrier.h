// Carries packed rows between a device's memory and the host's, a batch in one copy; the caller
// packs and unpacks them on either side.
//
// Thread safety: one caller at a time, between steps.
#ifndef EBB_ROWS_ROW_CARRIER_H_
#define EBB_ROWS_ROW_CARRIER_H_

#include <cstddef>

#include "ebb/status.h"
#include "src/device/device.h"
#include "src/device/device_block.h"

namespace ebb {

class RowCarrier {
 public:
  // REQUIRES: the device outlives the carrier.
  explicit RowCarrier(Device* device) : device_(device) {}

  // Room for a batch of so many bytes on either side.
  Status Reserve(size_t num_bytes);
  [[nodiscard]] std::byte* on_device() const { return on_device_.data(); }
  [[nodiscard]] std::byte* on_host() const { return on_host_.data(); }
  // Carries the first `num_bytes`, and returns once they are there. What packs and unpacks them
  // costs a read of them on its side.
  Status ToHost(size_t num_bytes);
  Status ToDevice(size_t num_bytes);

 private:
  Device* const device_;
  DeviceBlock on_device_;
  DeviceBlock on_host_;
};

}  // namespace ebb

#endif  // EBB_ROWS_ROW_CARRIER_H_
