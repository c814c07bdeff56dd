// How a test makes a simulated device misbehave: a hook that is asked before every allocation and
// every copy and answers what goes wrong with it.
#ifndef EBB_DEVICE_DEVICE_FAULTS_H_
#define EBB_DEVICE_DEVICE_FAULTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "src/device/device.h"

namespace ebb {

struct DeviceRequest {
  enum class Call : uint8_t { kAllocate, kCopy };
  Call call = Call::kCopy;
  MemoryKind memory = MemoryKind::kDevice;     // of an allocation
  DeviceQueue queue = DeviceQueue::kToDevice;  // of a copy
  size_t num_bytes = 0;
};

struct DeviceFault {
  enum class Kind : uint8_t { kNone, kFails };
  Kind kind = Kind::kNone;
  double delay_seconds = 0;  // of a copy, on the virtual clock
};

// Empty: nothing goes wrong.
using DeviceFaultHook = std::function<DeviceFault(const DeviceRequest&)>;

}  // namespace ebb

#endif  // EBB_DEVICE_DEVICE_FAULTS_H_
