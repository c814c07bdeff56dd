// Finds, by name, and lists the devices for which ggml has a backend.
#ifndef EBB_DEVICE_BACKEND_NAMES_H_
#define EBB_DEVICE_BACKEND_NAMES_H_

#include <string>
#include <string_view>

#include "ggml-backend.h"

namespace ebb {

inline constexpr std::string_view kRpcPrefix = "rpc:";  // HOST:PORT follows

[[nodiscard]] std::string Lower(std::string_view text);
// Returns whether the device has memory of its own, as GPUs do and processors do not.
[[nodiscard]] bool IsAccelerator(ggml_backend_dev_t device);
// Returns the device named DeviceSpec::name, in upper or lower case; null: there is none.
[[nodiscard]] ggml_backend_dev_t FindBackendDevice(std::string_view name);
// Adds a device for tests, which ggml does not list; its name is lower case. REQUIRES: no other
// thread looks for devices.
void AddTestDevice(ggml_backend_dev_t device);
// Returns "cpu, cuda0, ...", for error messages.
[[nodiscard]] std::string NamesOfDevices();

}  // namespace ebb

#endif  // EBB_DEVICE_BACKEND_NAMES_H_
