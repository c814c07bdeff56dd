// A backend of ggml for tests, "ggml-sim": ggml's on the processor behind what makes a real device
// different. Its memory is closed to the host except while it works, where the processor has
// protection keys. What is asked for on a queue is done at the latest moment that ggml allows: when
// somebody waits, when a later event of the queue is waited for by another, or when the queue
// computes, so that a missing wait, and memory that is changed while it is being copied, show as
// wrong results. It gives up where a test says so, as a driver does.
#ifndef EBB_DEVICE_SIM_BACKEND_H_
#define EBB_DEVICE_SIM_BACKEND_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "ggml-backend.h"
#include "ggml.h"

namespace ebb {

inline constexpr std::string_view kSimBackend = "ggml-sim";

// One device for the whole process, which ggml's own list of devices does not have.
[[nodiscard]] ggml_backend_dev_t SimBackendDevice();

enum class SimBackendWork : uint8_t { kCopy, kCompute, kAllocate };
// Asked before each piece of work; true: it fails there. An allocation that fails finds no memory;
// all else ends as a lost device does. Empty: nothing fails. Not while another thread uses a
// device.
using SimBackendFaults = std::function<bool(SimBackendWork)>;
void SetSimBackendFaults(SimBackendFaults faults);

// From now on it says that it cannot compute this operation; GGML_OP_NONE: it can all of them.
void SetSimBackendLacks(ggml_op op);

}  // namespace ebb

#endif  // EBB_DEVICE_SIM_BACKEND_H_
