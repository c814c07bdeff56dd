// Device is memory with queues of work and events, in the terms of an accelerator's runtime: a
// queue is a CUDA stream, Copy() an asynchronous copy from pinned to device memory, QueueWait()
// makes a stream wait for an event, and Wait() makes the host wait.
//
// The processor is a device whose memory is the host's, so that nothing needs to be copied there.
// Any other device is closed: the host cannot address its memory, and reaches rows by ReadRows(),
// WriteRows() and CopyRows().
//
// Thread safety: all functions may be called by several threads. Memory that a copy reads or writes
// belongs to that copy until a thread has waited for it.
#ifndef EBB_DEVICE_DEVICE_H_
#define EBB_DEVICE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// kDeviceMemoryStep divides the sizes and the addresses of all memory that a device allocates.
inline constexpr size_t kDeviceMemoryStep = size_t{2} << 20;

enum class MemoryKind : uint8_t {
  kDevice,
  kPinned,   // the host's, and known to the device for copies
  kRecords,  // the device's too, for bytes that are no rows of F16: compressed rows
};

enum class DeviceQueue : uint8_t {
  kToDevice,  // copies
  kCompute,
};

// DeviceEvent marks a point in a queue: it is reached when all work that was queued before has
// ended.
struct DeviceEvent {
  DeviceQueue queue = DeviceQueue::kCompute;
  uint64_t number = 0;  // the number of the last piece of work before the event; 0: none
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
  // nothing, and callers may skip them.
  [[nodiscard]] bool IsClosed() const { return is_closed_; }

  // Allocates memory with unspecified contents. Errors: OutOfMemory.
  virtual Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) = 0;
  // Frees memory of Allocate(). After an error the memory stays allocated.
  virtual Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) = 0;

  // Copies parts from pinned memory to the device's, on the queue kToDevice. The parts may be read
  // and written at any time until a thread waits for the returned event; Wait() returns a failure
  // of the copy.
  virtual DeviceEvent Copy(std::span<const CopyPart> parts) = 0;
  [[nodiscard]] virtual DeviceEvent Record(DeviceQueue queue) const = 0;
  // Makes work that is queued from now on begin after the event.
  virtual Status QueueWait(DeviceQueue queue, const DeviceEvent& event) = 0;
  virtual Status Wait(const DeviceEvent& event) = 0;

  // Returns at least `num_bytes` of the host's memory, pinned if possible, for rows on their way
  // between host and device. Every call returns the same memory, so one caller at a time may use
  // it. Null: there is not that much memory.
  virtual std::byte* Staging(size_t /*num_bytes*/) { return nullptr; }

  // Reads rows of the device's memory into `to`, packed; WriteRows() writes them from `from`,
  // packed; CopyRows() copies rows within the device's memory, as if one after the other. The calls
  // are made between steps, and are complete on return. Each of `rows` has `num_bytes` bytes. Rows
  // of kDevice are whole rows of F16, as are the rows of CopyRows(); rows of kRecords may have any
  // size. All rows of a call are of one kind of memory. Errors: the device's.
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
