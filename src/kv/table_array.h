// A vector for the big arrays of token tables. What is at least a system page long is mapped by
// itself, so that a table that shrinks gives memory back: the C heap keeps such holes for ever.
#ifndef EBB_KV_TABLE_ARRAY_H_
#define EBB_KV_TABLE_ARRAY_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <vector>

namespace ebb {

template <typename T>
struct TableAllocator {
  using value_type = T;
  static constexpr size_t kMappedBytes = 4096;

  TableAllocator() = default;
  template <typename U>
  TableAllocator(const TableAllocator<U>&) {}  // NOLINT: implicit, as allocators must be

  T* allocate(size_t num) {
    const size_t num_bytes = num * sizeof(T);
    if (num_bytes < kMappedBytes) return static_cast<T*>(::operator new(num_bytes));
    void* mapped =
        mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(mapped);
  }
  void deallocate(T* data, size_t num) {
    const size_t num_bytes = num * sizeof(T);
    if (num_bytes < kMappedBytes) {
      ::operator delete(data);
    } else {
      munmap(data, num_bytes);
    }
  }
  template <typename U>
  bool operator==(const TableAllocator<U>&) const {
    return true;
  }
};

template <typename T>
using TableArray = std::vector<T, TableAllocator<T>>;

// Room for `num` elements: a quarter more, in whole system pages where they are mapped.
template <typename T>
size_t TableCapacity(size_t num) {
  constexpr size_t kPerSystemPage = TableAllocator<T>::kMappedBytes / sizeof(T);
  const size_t wanted = num + num / 4;
  if (wanted < kPerSystemPage) return std::max<size_t>(wanted, 16);
  return (wanted + kPerSystemPage - 1) / kPerSystemPage * kPerSystemPage;
}

// Makes room for `num` elements. Amortised O(1) an element.
template <typename T>
void GrowTo(TableArray<T>* array, size_t num) {
  if (num > array->capacity()) array->reserve(TableCapacity<T>(num));
}

// Gives capacity back once less than half of it is used; while there is no memory for the smaller
// copy, the array stays as it is.
template <typename T>
void ShrinkToContents(TableArray<T>* array) {
  const size_t capacity = TableCapacity<T>(array->size());
  if (array->capacity() <= 2 * capacity) return;
  try {
    TableArray<T> smaller;
    smaller.reserve(capacity);
    smaller.assign(array->begin(), array->end());
    array->swap(smaller);
  } catch (const std::bad_alloc&) {
    return;
  }
}

}  // namespace ebb

#endif  // EBB_KV_TABLE_ARRAY_H_
