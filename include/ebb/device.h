// Where T0 lies and how T1 is read, as a user asks for it: `cpu`, one memory for all tiers; or an
// accelerator that ggml has a backend for, which then holds the weights and computes.
#ifndef EBB_DEVICE_H_
#define EBB_DEVICE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb {

enum class DeviceKind : uint8_t { kCpu, kBackend };

// What attends to rows in a backend's memory.
enum class DeviceAttention : uint8_t {
  kAuto,   // ebb's own kernels for single tokens where the backend has them (CUDA), else flash
  kFlash,  // ggml's flash attention, for which rows are gathered
  kEager,  // ggml's products and softmax over gathered rows, with logits in memory
};

struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  // of kBackend: one of ListDevices(), or how its name begins
  DeviceAttention attention = DeviceAttention::kAuto;  // of kBackend
  uint64_t memory_bytes = 0;  // that rows may take on it; 0: all that there is
};

// How rows of T1 take part in attention where the device cannot read them: attended to on the host,
// where they lie, and merged, which is exact up to rounding; or copied to the device layer by
// layer, ahead of their use, which changes no bit.
enum class T1Mode : uint8_t { kAuto, kCompute, kStream };

// A device of kBackend that is there.
struct DeviceDescription {
  std::string name;         // "cuda0"
  std::string description;  // by its driver
  std::string driver;       // its version; empty: not known
  std::string tested;       // what is known of ebb on devices of its kind
  uint64_t free_bytes = 0;  // 0, as the total: it does not say
  uint64_t total_bytes = 0;
};
[[nodiscard]] std::vector<DeviceDescription> ListDevices();

// "cpu"; the name of another device, "rpc:HOST:PORT" of ggml's RPC server among them, or
// "NAME:KEY=VALUE,..." with memory (16GiB) and attention (auto, flash, eager). InvalidArgument,
// naming what is expected, for anything else.
[[nodiscard]] Result<DeviceSpec> ParseDevice(std::string_view text);
[[nodiscard]] std::string_view DeviceAttentionName(DeviceAttention attention);
[[nodiscard]] Result<T1Mode> ParseT1Mode(std::string_view text);
[[nodiscard]] std::string_view T1ModeName(T1Mode mode);  // "auto", "compute", "stream"

}  // namespace ebb

#endif  // EBB_DEVICE_H_
