// Prefetches data into the processor's caches. Code that reads many small arrays in turn otherwise
// waits for memory once for each of them.
#ifndef EBB_BASE_FETCH_AHEAD_H_
#define EBB_BASE_FETCH_AHEAD_H_

#include <algorithm>
#include <cstddef>
#include <span>

namespace ebb {

inline constexpr size_t kCacheLineBytes = 64;
// kFetchedBytes is how much of an array FetchAhead() prefetches; the processor prefetches the rest
// of a longer array by itself.
inline constexpr size_t kFetchedBytes = 80 * kCacheLineBytes;

inline void FetchAhead(std::span<const std::byte> data) {
  const size_t num_bytes = std::min(data.size(), kFetchedBytes);
  for (size_t at = 0; at < num_bytes; at += kCacheLineBytes) __builtin_prefetch(data.data() + at);
}

template <typename T>
void FetchAhead(std::span<const T> data) {
  FetchAhead(std::as_bytes(data));
}

}  // namespace ebb

#endif  // EBB_BASE_FETCH_AHEAD_H_
