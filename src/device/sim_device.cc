#include "src/device/sim_device.h"

#include <utility>

#include "src/device/host_memory.h"

namespace ebb {
namespace {

bool IsCopyQueue(DeviceQueue queue) {
  return queue == DeviceQueue::kToDevice || queue == DeviceQueue::kToHost;
}

size_t Index(DeviceQueue queue) { return static_cast<size_t>(queue); }

}  // namespace

SimDevice::SimDevice(const DeviceSpec& spec, std::unique_ptr<SimMemory> memory)
    : Device(Sharing::kOwnMemory),
      memory_(std::move(memory)),
      copies_(memory_.get(), spec.copies),
      clock_(spec) {}
SimDevice::~SimDevice() = default;

Result<std::unique_ptr<SimDevice>> SimDevice::Create(const DeviceSpec& spec) {
  EBB_ASSIGN_OR_RETURN(auto memory, SimMemory::Create(spec.memory_bytes));
  return std::unique_ptr<SimDevice>(new SimDevice(spec, std::move(memory)));
}

DeviceFault SimDevice::FaultOf(const DeviceRequest& request) const {
  return faults_ ? faults_(request) : DeviceFault();
}

Result<std::byte*> SimDevice::Allocate(MemoryKind kind, size_t num_bytes) {
  const DeviceFault fault =
      FaultOf({.call = DeviceRequest::Call::kAllocate, .memory = kind, .num_bytes = num_bytes});
  if (fault.kind == DeviceFault::Kind::kFails) {
    return ResourceExhausted("the device refused the allocation");
  }
  const std::lock_guard lock(mutex_);
  return kind == MemoryKind::kDevice ? memory_->Allocate(num_bytes) : MapHostMemory(num_bytes);
}

Status SimDevice::Free(MemoryKind kind, std::byte* memory, size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  return kind == MemoryKind::kDevice ? memory_->Free(memory, num_bytes)
                                     : UnmapHostMemory(memory, num_bytes);
}

DeviceEvent SimDevice::Copy(DeviceQueue queue, const DeviceWork& work,
                            std::span<const CopyPart> parts) {
  const DeviceFault fault =
      FaultOf({.call = DeviceRequest::Call::kCopy, .queue = queue, .num_bytes = work.num_bytes});
  const std::lock_guard lock(mutex_);
  clock_.Run(queue, work, fault.delay_seconds);
  const uint64_t number = ++last_[Index(queue)];
  const bool fails = fault.kind == DeviceFault::Kind::kFails;
  copies_.Add(queue, number, parts,
              fails ? SimCopies::Outcome::kFails : SimCopies::Outcome::kArrives);
  return RecordLocked(queue);
}

DeviceEvent SimDevice::Launch(DeviceQueue queue, const DeviceWork& work) {
  const std::lock_guard lock(mutex_);
  clock_.Run(queue, work, 0);
  ++last_[Index(queue)];
  return RecordLocked(queue);
}

DeviceEvent SimDevice::RecordLocked(DeviceQueue queue) const {
  return {.queue = queue, .number = last_[Index(queue)], .seconds = clock_.FreeAt(queue)};
}

DeviceEvent SimDevice::Record(DeviceQueue queue) const {
  const std::lock_guard lock(mutex_);
  return RecordLocked(queue);
}

Status SimDevice::QueueWait(DeviceQueue queue, const DeviceEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    clock_.QueueWait(queue, event.seconds);
  }
  if (!IsCopyQueue(event.queue) || queue == event.queue) return OkStatus();
  if (IsCopyQueue(queue)) {
    copies_.AddWait(queue, event);
    return OkStatus();
  }
  return copies_.Arrive(event.queue, event.number);
}

Status SimDevice::Wait(const DeviceEvent& event) {
  {
    const std::lock_guard lock(mutex_);
    clock_.HostWait(event.seconds);
  }
  return IsCopyQueue(event.queue) ? copies_.Arrive(event.queue, event.number) : OkStatus();
}

double SimDevice::Seconds() const {
  const std::lock_guard lock(mutex_);
  return clock_.host();
}

}  // namespace ebb
