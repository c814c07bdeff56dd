#include "src/device/backend_names.h"

#include <cctype>
#include <fstream>
#include <vector>

#include "ebb/device.h"
#include "src/base/llama_runtime.h"

namespace ebb {
namespace {

// kHostBackend is the device name of ggml's CPU backend, treated as a device with memory of its
// own.
constexpr std::string_view kHostBackend = "ggml-cpu";

std::vector<ggml_backend_dev_t>& TestDevices() {
  static std::vector<ggml_backend_dev_t> devices;
  return devices;
}

// Returns the device of this name, or else the first one whose name begins with it: "cuda" finds
// CUDA0.
ggml_backend_dev_t FindDevice(std::string_view name) {
  const std::string wanted = Lower(name);
  for (ggml_backend_dev_t device : TestDevices()) {
    if (Lower(ggml_backend_dev_name(device)) == wanted) return device;
  }
  ggml_backend_dev_t first = nullptr;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (!IsAccelerator(device)) continue;
    const std::string its = Lower(ggml_backend_dev_name(device));
    if (its == wanted) return device;
    if (first == nullptr && its.starts_with(wanted)) first = device;
  }
  if (first == nullptr && wanted == kHostBackend) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  }
  return first;
}

// Returns the device of ggml's RPC server at HOST:PORT; null: ggml lacks the RPC backend, or the
// server has no device.
ggml_backend_dev_t FindRemoteDevice(const std::string& endpoint) {
  using AddServer = ggml_backend_reg_t (*)(const char*);
  ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
  if (rpc == nullptr) return nullptr;
  const auto add = reinterpret_cast<AddServer>(
      ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
  ggml_backend_reg_t server = add == nullptr ? nullptr : add(endpoint.c_str());
  if (server == nullptr || ggml_backend_reg_dev_count(server) == 0) return nullptr;
  return ggml_backend_reg_dev_get(server, 0);
}

// Returns how far ebb was tested on devices of a backend; docs/user/gpu.md says more.
std::string WhatIsTested(std::string_view backend) {
  if (backend == "CUDA") return "on an H200";
  if (backend == "Vulkan") return "on Mesa's driver for the processor";
  if (backend == "RPC") return "with ggml on a processor behind it";
  return "nothing";
}

// Returns the version of NVIDIA's driver from /proc, since ggml does not report it; empty if Linux
// does not either.
std::string NvidiaDriver() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    // Parses a line such as "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...".
    if (word.find('.') != std::string::npos && std::isdigit(static_cast<unsigned char>(word[0]))) {
      return word;
    }
  }
  return {};
}

}  // namespace

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

bool IsAccelerator(ggml_backend_dev_t device) {
  const auto type = ggml_backend_dev_type(device);
  return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

void AddTestDevice(ggml_backend_dev_t device) { TestDevices().push_back(device); }

ggml_backend_dev_t FindBackendDevice(std::string_view name) {
  const bool is_rpc = Lower(name).starts_with(kRpcPrefix);
  return is_rpc ? FindRemoteDevice(std::string(name.substr(kRpcPrefix.size()))) : FindDevice(name);
}

std::string NamesOfDevices() {
  std::string names = "cpu";
  for (const DeviceDescription& device : ListDevices()) names += ", " + device.name;
  return names;
}

std::vector<DeviceDescription> ListDevices() {
  std::vector<DeviceDescription> devices;
  // Looking for devices would end the process if the processor lacks instructions that ggml uses.
  if (!CheckProcessor().ok()) return devices;
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    if (!IsAccelerator(device)) continue;
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(device, &free, &total);
    const std::string_view kind = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
    devices.push_back({.name = Lower(ggml_backend_dev_name(device)),
                       .description = ggml_backend_dev_description(device),
                       .driver = kind == "CUDA" ? NvidiaDriver() : std::string(),
                       .tested = WhatIsTested(kind),
                       .free_bytes = free,
                       .total_bytes = total});
  }
  constexpr const char* kForTests = "the suites of a device";
  devices.push_back({.name = std::string(kHostBackend),
                     .description = "ggml on this processor, its memory taken as closed: for tests",
                     .tested = kForTests});
  for (ggml_backend_dev_t device : TestDevices()) {
    devices.push_back({.name = Lower(ggml_backend_dev_name(device)),
                       .description = ggml_backend_dev_description(device),
                       .tested = kForTests});
  }
  return devices;
}

}  // namespace ebb
