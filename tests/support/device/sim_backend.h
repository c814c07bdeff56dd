// A ggml backend for tests, "ggml-sim": it computes with ggml's CPU backend, but differs from the
// CPU as a real device does. Its memory is closed to the host except while it works, on processors
// with protection keys. It runs queued work at the latest moment that ggml allows: when a thread
// waits, when another queue waits for a later event of the queue, or when the queue computes. A
// missing wait, or memory that is changed while it is being copied, therefore shows as a wrong
// result. It fails where a test asks it to, as a driver does. A program that links it has the
// device.
#ifndef EBB_TESTS_SUPPORT_DEVICE_SIM_BACKEND_H_
#define EBB_TESTS_SUPPORT_DEVICE_SIM_BACKEND_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "ggml-backend.h"
#include "ggml.h"

namespace ebb {

inline constexpr std::string_view kSimBackend = "ggml-sim";

// Returns the process's only simulated device, which is not in ggml's list of devices.
[[nodiscard]] ggml_backend_dev_t SimBackendDevice();

enum class SimBackendWork : uint8_t { kCopy, kCompute, kAllocate };
// SimBackendFaults is called before each piece of work and returns whether the work fails. An
// allocation that fails returns no memory; a failure of other work loses the device. Empty: nothing
// fails. REQUIRES for setting it: no other thread uses a device.
using SimBackendFaults = std::function<bool(SimBackendWork)>;
void SetSimBackendFaults(SimBackendFaults faults);

// Makes the device report `op` as an operation that it cannot compute; GGML_OP_NONE: it reports
// none.
void SetSimBackendLacks(ggml_op op);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_DEVICE_SIM_BACKEND_H_
