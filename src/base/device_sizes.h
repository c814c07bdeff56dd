// What memory of a device is counted in, where it is foretold too.
#ifndef EBB_BASE_DEVICE_SIZES_H_
#define EBB_BASE_DEVICE_SIZES_H_

#include <cstddef>

#include "src/base/page_units.h"

namespace ebb {

// The buffer of rows grows by at least so much, and does not shrink below it.
inline constexpr size_t kLeastDeviceExtents = 8;
inline constexpr size_t kLeastDeviceBytes = kLeastDeviceExtents * kExtentBytes;

}  // namespace ebb

#endif  // EBB_BASE_DEVICE_SIZES_H_
