// An accelerator simulated within the process, so that ordering, overlap and failure are tested on
// any machine: memory that the host cannot touch outside device calls, copies that arrive late, a
// virtual clock that tells what they would have cost, and faults on request.
#ifndef EBB_DEVICE_SIM_DEVICE_H_
#define EBB_DEVICE_SIM_DEVICE_H_

#include <array>
#include <deque>
#include <memory>
#include <mutex>

#include "ebb/device.h"
#include "ebb/status.h"
#include "src/device/device.h"
#include "src/device/device_faults.h"
#include "src/device/sim_clock.h"
#include "src/device/sim_copies.h"
#include "src/device/sim_memory.h"

namespace ebb {

class SimDevice final : public Device {
 public:
  static Result<std::unique_ptr<SimDevice>> Create(const DeviceSpec& spec);
  ~SimDevice() override;

  [[nodiscard]] std::string_view name() const override { return "sim"; }
  Result<std::byte*> Allocate(MemoryKind kind, size_t num_bytes) override;
  Status Free(MemoryKind kind, std::byte* memory, size_t num_bytes) override;
  DeviceEvent Copy(DeviceQueue queue, const DeviceWork& work,
                   std::span<const CopyPart> parts) override;
  DeviceEvent Launch(DeviceQueue queue, const DeviceWork& work) override;
  [[nodiscard]] DeviceEvent Record(DeviceQueue queue) const override;
  Status QueueWait(DeviceQueue queue, const DeviceEvent& event) override;
  Status Wait(const DeviceEvent& event) override;
  [[nodiscard]] double Seconds() const override;

  // Between steps.
  void SetFaults(DeviceFaultHook hook) { faults_ = std::move(hook); }
  void KeepTimeline() { clock_.KeepTimeline(); }
  [[nodiscard]] const std::deque<TimelineEntry>& timeline() const { return clock_.timeline(); }
  [[nodiscard]] size_t used_bytes() const { return memory_->used_bytes(); }

 private:
  SimDevice(const DeviceSpec& spec, std::unique_ptr<SimMemory> memory);
  int Enter() override { return memory_->Open(); }
  void Leave(int before) override { memory_->Close(before); }
  [[nodiscard]] DeviceFault FaultOf(const DeviceRequest& request) const;
  [[nodiscard]] DeviceEvent RecordLocked(DeviceQueue queue) const;

  const std::unique_ptr<SimMemory> memory_;
  SimCopies copies_;
  DeviceFaultHook faults_;
  mutable std::mutex mutex_;
  SimClock clock_;
  std::array<uint64_t, kNumDeviceQueues> last_ = {};  // pieces of work of each queue so far
};

}  // namespace ebb

#endif  // EBB_DEVICE_SIM_DEVICE_H_
