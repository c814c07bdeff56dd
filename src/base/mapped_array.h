// MappedArray is a vector for data with one value per row of a cache. It maps arrays of at least a
// system page from the system, so that an array that shrinks returns memory; the C heap would never
// return such memory.
#ifndef EBB_BASE_MAPPED_ARRAY_H_
#define EBB_BASE_MAPPED_ARRAY_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

#include "src/base/sanitizers.h"

namespace ebb {

template <typename T>
struct MappedAllocator {
  using value_type = T;
  static constexpr size_t kMappedBytes = 4096;
  static constexpr size_t kHugeBytes = size_t{4} << 20;
  // Returns whether an array of `num_bytes` bytes is mapped. Under the address sanitizer none is,
  // because it checks bounds only on the heap.
  static constexpr bool IsMapped(size_t num_bytes) {
    return !kAddressSanitizer && num_bytes >= kMappedBytes;
  }

  MappedAllocator() = default;
  template <typename U>
  MappedAllocator(const MappedAllocator<U>&) {}  // NOLINT: implicit, as allocators must be

  T* allocate(size_t num) {
    const size_t num_bytes = num * sizeof(T);
    if (!IsMapped(num_bytes)) return static_cast<T*>(::operator new(num_bytes));
    void* mapped =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    // Huge pages make the first access cheaper. Only speed depends on this hint.
    if (num_bytes >= kHugeBytes) madvise(mapped, num_bytes, MADV_HUGEPAGE);
    return static_cast<T*>(mapped);
  }
  void deallocate(T* data, size_t num) {
    const size_t num_bytes = num * sizeof(T);
    if (!IsMapped(num_bytes)) {
      ::operator delete(data);
    } else {
      munmap(data, num_bytes);
    }
  }
  template <typename U>
  bool operator==(const MappedAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using MappedArray = std::vector<T, MappedAllocator<T>>;

// Returns the capacity for `num` elements: a quarter more, and whole system pages if the array is
// mapped.
template <typename T>
size_t MappedCapacity(size_t num) {
  constexpr size_t kPerSystemPage = MappedAllocator<T>::kMappedBytes / sizeof(T);
  const size_t wanted = num + num / 4;
  if (wanted < kPerSystemPage) return std::max<size_t>(wanted, 16);
  return (wanted + kPerSystemPage - 1) / kPerSystemPage * kPerSystemPage;
}

// Returns the most bytes of an array after GrowTo() for `num` elements.
template <typename T>
size_t MappedBytes(size_t num) {
  return num == 0 ? 0 : MappedCapacity<T>(num) * sizeof(T);
}

// Reserves capacity for `num` elements, in amortised O(1) per element.
template <typename T>
void GrowTo(MappedArray<T>* array, size_t num) {
  if (num > array->capacity()) array->reserve(MappedCapacity<T>(num));
}

// Reduces the capacity if less than half of it is used. Without memory for the smaller copy, does
// nothing.
template <typename T>
void ShrinkToContents(MappedArray<T>* array) {
  const size_t capacity = MappedCapacity<T>(array->size());
  if (array->capacity() <= 2 * capacity) return;
  try {
    MappedArray<T> smaller;
    smaller.reserve(capacity);
    smaller.assign(array->begin(), array->end());
    array->swap(smaller);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace ebb

#endif  // EBB_BASE_MAPPED_ARRAY_H_
