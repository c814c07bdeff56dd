#include "src/device/sim_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <system_error>

#include "src/device/device.h"

namespace ebb {
namespace {

std::string Reason() { return std::generic_category().message(errno); }

}  // namespace

Result<std::unique_ptr<SimMemory>> SimMemory::Create(size_t num_bytes) {
  const size_t size = (num_bytes + kDeviceMemoryStep - 1) / kDeviceMemoryStep * kDeviceMemoryStep;
  const auto refused = [&] {
    return ResourceExhausted(
        fmt::format("the system refused {} bytes of addresses for the memory of the simulated "
                    "device: {}",
                    num_bytes, Reason()));
  };
  if (size < num_bytes || size + kDeviceMemoryStep < size) {
    errno = ENOMEM;
    return refused();
  }
  void* mapped = mmap(nullptr, size + kDeviceMemoryStep, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return refused();
  std::unique_ptr<SimMemory> memory(new SimMemory);
  memory->reserved_ = static_cast<std::byte*>(mapped);
  const uintptr_t head = -reinterpret_cast<uintptr_t>(mapped) & (kDeviceMemoryStep - 1);
  memory->base_ = memory->reserved_ + head;
  memory->size_ = size;
  memory->free_.emplace(0, size);
  // A wish: nothing but speed depends on it.
  madvise(memory->base_, size, MADV_HUGEPAGE);
  if (!memory->Protect()) return refused();
  return memory;
}

// From the start a key protects memory that is else readable and writable. Limits count memory that
// may be written, so that they are met here and not in a call.
bool SimMemory::Protect() {
#ifdef PKEY_DISABLE_ACCESS
  key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  if (key_ >= 0) {
    if (pkey_mprotect(base_, size_, PROT_READ | PROT_WRITE, key_) == 0) return true;
    pkey_free(key_);
    key_ = -1;
  }
#endif
  return mprotect(base_, size_, PROT_READ | PROT_WRITE) == 0 &&
         mprotect(base_, size_, PROT_NONE) == 0;
}

SimMemory::~SimMemory() {
#ifdef PKEY_DISABLE_ACCESS
  if (key_ >= 0) pkey_free(key_);
#endif
  munmap(reserved_, size_ + kDeviceMemoryStep);
}

Result<std::byte*> SimMemory::Allocate(size_t num_bytes) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [offset, length] = *range;
    if (length < num_bytes) continue;
    free_.erase(range);
    if (length > num_bytes) free_.emplace(offset + num_bytes, length - num_bytes);
    used_bytes_ += num_bytes;
    return base_ + offset;
  }
  return ResourceExhausted(
      fmt::format("{} more bytes of the device's memory are wanted, but {} of its {} are in use",
                  num_bytes, used_bytes_, size_));
}

Status SimMemory::Free(std::byte* memory, size_t num_bytes) {
  // What comes back is empty again, and takes no memory of the host.
  if (madvise(memory, num_bytes, MADV_DONTNEED) != 0) return ResourceExhausted(Reason());
  size_t offset = memory - base_;
  size_t length = num_bytes;
  const auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      length += before->second;
      free_.erase(before);
    }
  }
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, length);
  used_bytes_ -= num_bytes;
  return OkStatus();
}

int SimMemory::Open() {
#ifdef PKEY_DISABLE_ACCESS
  if (key_ >= 0) {
    const int before = pkey_get(key_);
    if (pkey_set(key_, 0) != 0) std::abort();
    return before;
  }
#endif
  const std::lock_guard lock(mutex_);
  if (num_open_++ == 0 && mprotect(base_, size_, PROT_READ | PROT_WRITE) != 0) std::abort();
  return 0;
}

void SimMemory::Close(int before) {
#ifdef PKEY_DISABLE_ACCESS
  if (key_ >= 0) {
    if (pkey_set(key_, before) != 0) std::abort();
    return;
  }
#endif
  const std::lock_guard lock(mutex_);
  if (--num_open_ == 0 && mprotect(base_, size_, PROT_NONE) != 0) std::abort();
}

}  // namespace ebb
