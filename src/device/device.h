// A device: memory, queues of work, events. The shape is that of an accelerator's runtime, so that
// one can be filled in: a queue is a stream, Copy() an asynchronous copy between pinned and device
// memory, QueueWait() makes a stream wait for an event, Wait() makes the host wait.
//
// Work of the compute queue is done by the caller's own threads, in a DeviceCall, after Launch()
// announced it; a device that computes by itself would begin its kernel there. So whatever was
// launched before a copy is asked for is done by then.
//
// A device may also keep its memory from the host altogether (IsClosed()): then a DeviceCall opens
// nothing, and rows are reached by ReadRows(), WriteRows() and CopyRows() and by the device's own
// computing.
//
// Thread safety: all functions may be called by several threads; memory that a copy reads or writes
// belongs to that copy until somebody waited for it.
#ifndef EBB_DEVICE_DEVICE_H_
#define EBB_DEVICE_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Memory comes in multiples of this, aligned to it.
inline constexpr size_t kDeviceMemoryStep = size_t{2} << 20;

enum class MemoryKind : uint8_t {
  kDevice,
  kPinned,  // the host's, and known to the device for copies
};

enum class DeviceQueue : uint8_t {
  kToDevice,  // copies
  kToHost,    // copies
  kCompute,   // of the device
  kHost,      // of the host, on behalf of the device
};
inline constexpr int kNumDeviceQueues = 4;

// All that a queue was given before it.
struct DeviceEvent {
  DeviceQueue queue = DeviceQueue::kCompute;
  uint64_t number = 0;  // of the last piece of work before it; 0: none
  double seconds = 0;   // when it happens, on the clock of a simulated device
};

struct CopyPart {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t num_bytes = 0;
};

// What a piece of work is called and what it costs.
struct DeviceWork {
  std::string_view what;  // outlives the device; for timelines
  int layer = -1;
  size_t num_bytes = 0;  // that it reads or carries
  int num_layers = 0;    // layers' worth of work besides their attention
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Whether host and device read and write the same memory: then nothing need be copied, Copy()
  // and the events do nothing that is worth a call, and DeviceCall costs nothing.
  [[nodiscard]] bool one_memory() const { return sharing_ == Sharing::kOneMemory; }

  [[nodiscard]] bool IsClosed() const { return sharing_ == Sharing::kClosed; }

  // Contents unspecified. ResourceExhausted when there is no more.
  virtual Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) = 0;
  // Gives back what Allocate() gave. An error keeps it.
  virtual Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) = 0;

  // One batch, which costs one latency; the parts are read and written at any time until somebody
  // waits for it. Its failure is told by the wait for the returned event.
  virtual DeviceEvent Copy(DeviceQueue queue, const DeviceWork& work,
                           std::span<const CopyPart> parts) = 0;
  virtual DeviceEvent Launch(DeviceQueue queue, const DeviceWork& work) = 0;
  [[nodiscard]] virtual DeviceEvent Record(DeviceQueue queue) const = 0;
  // What the queue is given from now on begins after the event. Once this returned for a queue of
  // computing, bytes that were copied before the event are there.
  virtual Status QueueWait(DeviceQueue queue, const DeviceEvent& event) = 0;
  virtual Status Wait(const DeviceEvent& event) = 0;

  // Between steps: reads, writes and copies in the device's memory, done on return. Each of `rows`
  // has `num_bytes`, and they are packed on the host's side; those that CopyRows() names are copied
  // as if one after the other. Errors: the device's.
  virtual Status ReadRows(std::span<const std::byte* const> rows, size_t num_bytes, std::byte* to);
  virtual Status WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                           const std::byte* from);
  virtual Status CopyRows(std::span<const CopyPart> rows);

  // The host's clock: of the world, or of the simulation.
  [[nodiscard]] virtual double Seconds() const = 0;

 protected:
  enum class Sharing : uint8_t { kOneMemory, kOwnMemory, kClosed };
  explicit Device(Sharing sharing) : sharing_(sharing) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  friend class DeviceCall;
  // Opens device memory to this thread and returns what it could do before; takes that back.
  virtual int Enter() = 0;
  virtual void Leave(int before) = 0;
  const Sharing sharing_;
};

// While it lives, this thread acts for the device and may touch its memory.
class DeviceCall {
 public:
  explicit DeviceCall(Device* device)
      : device_(device->one_memory() ? nullptr : device),
        before_(device_ == nullptr ? 0 : device_->Enter()) {}
  ~DeviceCall() {
    if (device_ != nullptr) device_->Leave(before_);
  }
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;

 private:
  Device* const device_;
  const int before_;
};

// The machine itself: one memory. Lives as long as the program.
[[nodiscard]] Device& CpuDevice();

}  // namespace ebb

#endif  // EBB_DEVICE_DEVICE_H_
