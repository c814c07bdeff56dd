// Prefetches data into the processor's caches, for code that reads many small arrays one after the
// other and would otherwise wait for memory at each of them.
#ifndef EBB_BASE_FETCH_AHEAD_H_
#define EBB_BASE_FETCH_AHEAD_H_

#include <algorithm>
#include <cstddef>
#include <span>

namespace ebb {

inline constexpr size_t kCacheLineBytes = 64;
// kFetchedBytes is how much of an array FetchAhead() prefetches; the processor itself prefetches
// the rest of a long array.
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
