// A device: memory, queues of work, events. The shape is that of an accelerator's runtime: a queue
// is a stream, Copy() an asynchronous copy from pinned to device memory, QueueWait() makes a stream
// wait for an event, Wait() makes the host wait.
//
// The machine itself is one whose memory is the host's: nothing need be copied there. Any other
// keeps its memory from the host: rows are reached by ReadRows(), WriteRows() and CopyRows() and by
// the device's own computing.
//
// Thread safety: all functions may be called by several threads; memory that a copy reads or writes
// belongs to that copy until a thread has waited for it.
#ifndef EBB_DEVICE_DEVICE_H_
#define EBB_DEVICE_DEVICE_H_

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
  kPinned,   // the host's, and known to the device for copies
  kRecords,  // the device's too, for bytes that are no rows of F16: compressed rows
};

enum class DeviceQueue : uint8_t {
  kToDevice,  // copies
  kCompute,
};

// All that a queue was given before it.
struct DeviceEvent {
  DeviceQueue queue = DeviceQueue::kCompute;
  uint64_t number = 0;  // of the last piece of work before it; 0: none
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
  // Whether the host cannot touch its memory. If not, Copy() and the events do nothing that is
  // worth a call.
  [[nodiscard]] bool IsClosed() const { return is_closed_; }

  // Contents unspecified. OutOfMemory when there is no more.
  virtual Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) = 0;
  // Gives back what Allocate() gave. An error keeps it.
  virtual Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) = 0;

  // From pinned memory to the device's, on the queue of copies; the parts are read and written at
  // any time until a thread waits for the returned event, which reports its failure too.
  virtual DeviceEvent Copy(std::span<const CopyPart> parts) = 0;
  [[nodiscard]] virtual DeviceEvent Record(DeviceQueue queue) const = 0;
  // Work that the queue is given from now on begins after the event.
  virtual Status QueueWait(DeviceQueue queue, const DeviceEvent& event) = 0;
  virtual Status Wait(const DeviceEvent& event) = 0;

  // Memory of the host, pinned where that can be, for rows that pass between the two, the same at
  // every call, so for one at a time. Null: so much is not to be had.
  virtual std::byte* Staging(size_t /*num_bytes*/) { return nullptr; }

  // Between steps: reads, writes and copies in the device's memory, done on return. Each of `rows`
  // has `num_bytes`, and they are packed on the host's side; those that CopyRows() names are copied
  // as if one after the other. Rows of kDevice are whole rows of F16, as is what CopyRows() copies;
  // in kRecords, others are of any size. All rows of a call are of one kind. Errors: the device's.
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

// The machine itself. Lives as long as the program.
[[nodiscard]] Device& CpuDevice();

}  // namespace ebb

#endif  // EBB_DEVICE_DEVICE_H_
