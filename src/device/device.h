// Device is memory with queues of work and events, in the terms of an accelerator's runtime: a
// queue is a CUDA stream, Copy() an asynchronous copy from pinned to device memory, QueueWait()
// makes a stream wait for an event, and Wait() makes the host wait.
//
// The processor is a Device whose memory is the host's, so that nothing is copied. All other
// devices are closed: the host cannot address their memory, and uses ReadRows(), WriteRows() and
// CopyRows().
//
// Thread safety: all functions may be called by several threads. Memory that a copy reads or writes
// must not be used until a thread has waited for the copy.
#ifndef EBB_DEVICE_DEVICE_H_
#define EBB_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// kDeviceMemoryStep is a divisor of the sizes and addresses of all memory that a device allocates.
inline constexpr size_t kDeviceMemoryStep = size_t{2} << 20;

enum class MemoryKind : uint8_t {
  kDevice,
  kPinned,   // host memory from which the device can copy
  kRecords,  // device memory for compressed rows, not F16
};

enum class DeviceQueue : uint8_t {
  kToDevice,  // copies to the device
  kCompute,
};

// DeviceEvent marks a point in a queue, reached when all work queued before it has ended.
struct DeviceEvent {
  DeviceQueue queue = DeviceQueue::kCompute;
  uint64_t number = 0;  // number of the last work before it; 0: none
};

struct CopyPart {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t num_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Returns whether the host cannot address the device's memory. If it can, Copy() and events do
  // nothing.
  [[nodiscard]] bool IsClosed() const { return is_closed_; }

  // Allocates memory with unspecified contents. Errors: OutOfMemory.
  virtual Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) = 0;
  // Frees memory from Allocate(). After an error the memory stays allocated.
  virtual Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) = 0;

  // Copies parts from pinned memory to the device's, on the queue kToDevice. The parts may be read
  // and written until a thread has waited for the returned event; a failed copy is reported by
  // Wait().
  virtual DeviceEvent Copy(std::span<const CopyPart> parts) = 0;
  [[nodiscard]] virtual DeviceEvent Record(DeviceQueue queue) const = 0;
  // Delays work that is queued from now on until the event is reached.
  virtual Status QueueWait(DeviceQueue queue, const DeviceEvent& event) = 0;
  virtual Status Wait(const DeviceEvent& event) = 0;

  // Returns at least `num_bytes` bytes of host memory, pinned if possible, for copying rows between
  // host and device. Every call returns the same memory, so that only one caller at a time may use
  // it. Null: not enough memory.
  virtual std::byte* Staging(size_t /*num_bytes*/) { return nullptr; }

  // Copy rows between steps, and return when the copies are complete: ReadRows() from the device to
  // `to`, WriteRows() from `from` to the device, both packed on the host; CopyRows() within the
  // device, as if one row after the other. Each row has `num_bytes` bytes. In kDevice memory, and
  // for CopyRows(), they are whole F16 rows; in kRecords they may have any size. All rows of a call
  // lie in one kind of memory. Errors: the device's.
  virtual Status ReadRows(std::span<const std::byte* const> rows, size_t num_bytes,
                          std::byte* to) = 0;
  virtual Status WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                           const std::byte* from) = 0;
  virtual Status CopyRows(std::span<const CopyPart> rows) = 0;

 protected:
  explicit Device(bool is_closed) : is_closed_(is_closed) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

 private:
  const bool is_closed_;
};

// Returns the processor as a device, which lives as long as the program.
[[nodiscard]] Device& CpuDevice();

}  // namespace ebb

#endif  // EBB_DEVICE_DEVICE_H_
