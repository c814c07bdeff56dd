// The device of T0 and the way of reading T1, as options: `cpu`, one memory for all tiers; or an
// accelerator that ggml has a backend for, which then holds the weights and computes.
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

// The kernel that attends to rows in a backend's memory.
enum class DeviceAttention : uint8_t {
  kAuto,   // ebb's own kernels for single tokens where the backend has them (CUDA), else flash
  kFlash,  // ggml's flash attention, for which rows are gathered; eager where the host attends too
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
  std::string tested;       // how far ebb was tested on devices of its kind
  uint64_t free_bytes = 0;  // 0, as the total: it does not say
  uint64_t total_bytes = 0;
};
[[nodiscard]] std::vector<DeviceDescription> ListDevices();

// "cpu"; the name of another device, "rpc:HOST:PORT" of ggml's RPC server among them, or
// "NAME:KEY=VALUE,..." with memory (16GiB) and attention (auto, flash, eager). InvalidArgument,
// naming the expected form, for anything else.
[[nodiscard]] Result<DeviceSpec> ParseDevice(std::string_view text);
[[nodiscard]] std::string_view DeviceAttentionName(DeviceAttention attention);
[[nodiscard]] Result<T1Mode> ParseT1Mode(std::string_view text);
[[nodiscard]] std::string_view T1ModeName(T1Mode mode);  // "auto", "compute", "stream"

// How many compute threads there is room for: what `threads == 0` means in every options struct.
// Three things limit it:
//
// - The affinity mask (`taskset`, cpusets): the hardware threads that this thread may run on.
// - SMT: hardware threads of one core share its arithmetic units and caches, so they count once.
// - The CPU quota of the process's control group or of one above it (containers, systemd): the
//   processor time that all threads together may use. It is rounded up: with a quota of 1.5
//   processors two threads do the work of 1.5, since a thread that waits for another sleeps. With a
//   quota of 1.0 a second thread would only make the first one wait.
//
// Thread safety: the functions may be called from any thread. Each call asks the system again:
// AvailableProcessors() reads a few small files and one for each hardware thread. Neither fails; a
// limit that cannot be read is none.

struct Processors {
  int hardware_threads = 1;  // in the affinity mask
  int cores = 1;             // that these hardware threads belong to
  double quota = 0;          // in processors: 1.5 is 1.5 s of processor time a second; 0: no limit
  int threads = 1;           // min(cores, quota rounded up)
};
[[nodiscard]] Processors AvailableProcessors();

// The numbers of the hardware threads in the affinity mask, ascending; at least one.
[[nodiscard]] std::vector<int> AllowedCpus();

}  // namespace ebb

#endif  // EBB_DEVICE_H_
