#include "src/io/io_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace ebb {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

uint64_t IoMemory::BytesFor(uint64_t num_bytes) {
  return (num_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

Result<IoMemory> IoMemory::Map(size_t num_bytes) {
  if (num_bytes == 0) return IoMemory();
  const auto refused = [num_bytes](int error) {
    return OutOfMemory(fmt::format("no memory for {} bytes to read into: {}", num_bytes,
                                   std::generic_category().message(error)));
  };
  if (num_bytes > SIZE_MAX / 4) return refused(ENOMEM);
  const size_t size = BytesFor(num_bytes);
  // Map one huge page more, which always contains an aligned range, and unmap the rest before it is
  // touched.
  const size_t mapped_bytes = size + kHugePageBytes;
  void* mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return refused(errno);
  auto* base = static_cast<std::byte*>(mapped);
  const size_t head_bytes = -reinterpret_cast<uintptr_t>(base) & (kHugePageBytes - 1);
  if (head_bytes > 0) munmap(base, head_bytes);
  munmap(base + head_bytes + size, kHugePageBytes - head_bytes);
  // Ignore errors of this hint: only speed depends on it.
  madvise(base + head_bytes, size, MADV_HUGEPAGE);
  return IoMemory({base + head_bytes, size});
}

IoMemory::IoMemory(IoMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

IoMemory& IoMemory::operator=(IoMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

IoMemory::~IoMemory() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

}  // namespace ebb
