#include <cstring>

#include "src/device/device.h"
#include "src/device/host_memory.h"

namespace ebb {
namespace {

class Cpu final : public Device {
 public:
  Cpu() : Device(/*is_closed=*/false) {}
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  Result<std::byte*> Allocate(MemoryKind, size_t num_bytes) override {
    return MapHostMemory(num_bytes);
  }
  Status Free(MemoryKind, std::byte* memory, size_t num_bytes) override {
    return UnmapHostMemory(memory, num_bytes);
  }
  DeviceEvent Copy(std::span<const CopyPart> parts) override {
    CopyAll(parts);
    return {};
  }
  [[nodiscard]] DeviceEvent Record(DeviceQueue) const override { return {}; }
  Status QueueWait(DeviceQueue, const DeviceEvent&) override { return OkStatus(); }
  Status Wait(const DeviceEvent&) override { return OkStatus(); }

  Status ReadRows(std::span<const std::byte* const> rows, size_t num_bytes,
                  std::byte* to) override {
    for (const std::byte* row : rows) {
      std::memcpy(to, row, num_bytes);
      to += num_bytes;
    }
    return OkStatus();
  }
  Status WriteRows(std::span<std::byte* const> rows, size_t num_bytes,
                   const std::byte* from) override {
    for (std::byte* row : rows) {
      std::memcpy(row, from, num_bytes);
      from += num_bytes;
    }
    return OkStatus();
  }
  Status CopyRows(std::span<const CopyPart> rows) override {
    CopyAll(rows);
    return OkStatus();
  }

 private:
  static void CopyAll(std::span<const CopyPart> parts) {
    for (const CopyPart& part : parts) std::memcpy(part.to, part.from, part.num_bytes);
  }
};

}  // namespace

Device& CpuDevice() {
  static Cpu* const cpu = new Cpu;
  return *cpu;
}

}  // namespace ebb
