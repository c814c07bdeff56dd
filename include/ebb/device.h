// Options for the device that holds T0 and for how T1 is read. The device is `cpu`, where all tiers
// lie in one memory, or an accelerator that ggml has a backend for, which then holds the weights
// and computes.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_DEVICE_H_
#define EBB_DEVICE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace [[gnu::visibility("default")]] ebb {

enum class DeviceKind : uint8_t { kCpu, kBackend };

// DeviceAttention names the kernel that attends to rows in an accelerator's memory.
enum class DeviceAttention : uint8_t {
  kAuto,   // ebb's own kernels for single tokens where the backend has them (CUDA), else flash
  kFlash,  // ggml's flash attention, for which rows are gathered; eager where the host attends too
  kEager,  // ggml's products and softmax over gathered rows, with logits in memory
};

// DeviceSpec selects a device and says how it is used.
struct DeviceSpec {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;  // of kBackend: one of ListDevices(), or how its name begins
  DeviceAttention attention = DeviceAttention::kAuto;  // of kBackend
  uint64_t memory_bytes = 0;  // bytes of its memory that rows may take; 0: all
};

// T1Mode selects how attention uses rows of T1 that the device cannot read. kCompute: the host
// attends to the rows in place, and the results are merged, which is exact up to rounding. kStream:
// the rows are copied to the device layer by layer, ahead of their use, which changes no bit.
// kAuto: EngineOptions::t1_mode describes the choice.
enum class T1Mode : uint8_t { kAuto, kCompute, kStream };

// DeviceDescription describes an accelerator that is present (DeviceKind::kBackend).
struct DeviceDescription {
  std::string name;         // "cuda0"
  std::string description;  // by its driver
  std::string driver;       // its version; empty: not known
  std::string tested;       // how far ebb was tested on devices of its kind
  uint64_t free_bytes = 0;  // 0, as the total: it does not say
  uint64_t total_bytes = 0;
};
// Returns the accelerators that are present, and two devices for tests on the processor.
[[nodiscard]] std::vector<DeviceDescription> ListDevices();

// Parses "cpu", the name of another device ("rpc:HOST:PORT" for ggml's RPC server), or
// "NAME:KEY=VALUE,..." with the keys memory (16GiB) and attention (auto, flash, eager). Errors:
// InvalidArgument, naming the expected form.
[[nodiscard]] Result<DeviceSpec> ParseDevice(std::string_view text);
// Returns "auto", "flash" or "eager".
[[nodiscard]] std::string_view DeviceAttentionName(DeviceAttention attention);
// Parses "auto", "compute" or "stream". Errors: InvalidArgument, listing these names.
[[nodiscard]] Result<T1Mode> ParseT1Mode(std::string_view text);
[[nodiscard]] std::string_view T1ModeName(T1Mode mode);  // "auto", "compute", "stream"

// AvailableProcessors() counts the compute threads that there is room for; `threads == 0` in every
// options struct means that count. Three limits apply:
//
// - The affinity mask (`taskset`, cpusets): the hardware threads that this thread may run on.
// - SMT: hardware threads of one core share its arithmetic units and caches, so they count once.
// - The CPU quota of the process's control group or of one above it (containers, systemd): the
//   processor time that all threads together may use, rounded down to processors, at least 1. With
//   more threads than that, the threads use up the quota before its period ends, and the kernel
//   then stops all of them until the next period.
//
// Thread safety: the functions may be called from any thread. Each call asks the system again:
// AvailableProcessors() reads a few small files and one file for each hardware thread. Neither
// function fails; a limit that cannot be read does not count.

// Processors holds the limits on compute threads, and the count that follows from them.
struct Processors {
  int hardware_threads = 1;  // in the affinity mask
  int cores = 1;             // cores that have these hardware threads
  double quota = 0;          // in processors: 1.5 is 1.5 s of processor time a second; 0: no limit
  int threads = 1;           // min(cores, quota rounded down), at least 1
};
// Returns the processors that this thread may use now.
[[nodiscard]] Processors AvailableProcessors();

// Returns the numbers of the hardware threads in the affinity mask, ascending; at least one.
[[nodiscard]] std::vector<int> AllowedCpus();

}  // namespace ebb

#endif  // EBB_DEVICE_H_
