// IoMemory is memory into which direct reads are fast: huge pages, if the system provides them. The
// disk then handles a request of 1 MiB as one piece instead of 256 scattered ones, which is two to
// three times as fast on virtual disks (bench/io_bench.cc). Memory of malloc() is no substitute: it
// may consist of small pages that were touched before and stay small.
//
// Ownership: movable; the destructor returns the memory to the system.
#ifndef EBB_IO_IO_MEMORY_H_
#define EBB_IO_IO_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ebb/status.h"

namespace ebb {

class IoMemory {
 public:
  IoMemory() = default;  // owns no memory
  // Maps at least `num_bytes` bytes of zeros, rounded up to 2 MiB and aligned to 2 MiB. Errors:
  // OutOfMemory.
  static Result<IoMemory> Map(size_t num_bytes);
  // Returns the bytes that Map(num_bytes) maps.
  [[nodiscard]] static uint64_t BytesFor(uint64_t num_bytes);
  IoMemory(IoMemory&& other) noexcept;
  IoMemory& operator=(IoMemory&& other) noexcept;
  ~IoMemory();

  [[nodiscard]] std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

 private:
  explicit IoMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

}  // namespace ebb

#endif  // EBB_IO_IO_MEMORY_H_
