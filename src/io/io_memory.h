// Memory that direct reads are fast into: huge pages where the system gives them. A disk takes a
// request of 1 MiB in one piece then instead of 256 scattered ones, which is worth a factor of two
// to three on virtual disks (bench/io_bench.cc). Memory of malloc is no substitute: it may hand
// out small pages that were touched before, and they stay small.
//
// Ownership: movable; the memory goes back to the system with the object.
#ifndef EBB_IO_IO_MEMORY_H_
#define EBB_IO_IO_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "ebb/status.h"

namespace ebb {

class IoMemory {
 public:
  IoMemory() = default;  // empty
  // Zeros, aligned to 2 MiB, at least `num_bytes` of them (rounded up to 2 MiB). OutOfMemory
  // when the system has no more.
  static Result<IoMemory> Map(size_t num_bytes);
  // Returns what Map() rounds up to.
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
