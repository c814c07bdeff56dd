// Names of the devices that ggml has a backend for: which there are, and which one is meant.
#ifndef EBB_DEVICE_BACKEND_NAMES_H_
#define EBB_DEVICE_BACKEND_NAMES_H_

#include <string>
#include <string_view>

#include "ggml-backend.h"

namespace ebb {

inline constexpr std::string_view kRpcPrefix = "rpc:";  // HOST:PORT follows

[[nodiscard]] std::string Lower(std::string_view text);
// A device of its own, no processor.
[[nodiscard]] bool IsAccelerator(ggml_backend_dev_t device);
// By a name as DeviceSpec has it, whatever its letters' case; null: there is none.
[[nodiscard]] ggml_backend_dev_t FindBackendDevice(std::string_view name);
// "cpu, cuda0, ...", for errors.
[[nodiscard]] std::string NamesOfDevices();

}  // namespace ebb

#endif  // EBB_DEVICE_BACKEND_NAMES_H_
