#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "src/device/device.h"
#include "src/device/host_memory.h"

namespace ebb {
namespace {

class Cpu final : public Device {
 public:
  Cpu() : Device(Sharing::kOneMemory) {}
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  Result<std::byte*> Allocate(MemoryKind, size_t num_bytes) override {
    return MapHostMemory(num_bytes);
  }
  Status Free(MemoryKind, std::byte* memory, size_t num_bytes) override {
    return UnmapHostMemory(memory, num_bytes);
  }
  DeviceEvent Copy(DeviceQueue, const DeviceWork&, std::span<const CopyPart> parts) override {
    for (const CopyPart& part : parts) std::memcpy(part.to, part.from, part.num_bytes);
    return {};
  }
  DeviceEvent Launch(DeviceQueue, const DeviceWork&) override { return {}; }
  [[nodiscard]] DeviceEvent Record(DeviceQueue) const override { return {}; }
  Status QueueWait(DeviceQueue, const DeviceEvent&) override { return OkStatus(); }
  Status Wait(const DeviceEvent&) override { return OkStatus(); }
  [[nodiscard]] double Seconds() const override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
  }

 private:
  int Enter() override { return 0; }
  void Leave(int) override {}
};

}  // namespace

Device& CpuDevice() {
  static Cpu* const cpu = new Cpu;
  return *cpu;
}

}  // namespace ebb
