// Removes rows of a cache by naming those that stay, for tests and benchmarks.
#ifndef EBB_KV_RETAIN_FOR_TEST_H_
#define EBB_KV_RETAIN_FOR_TEST_H_

#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/sequence_cache.h"

namespace ebb {

// Removes the rows of the group except those at the ascending indices `kept`.
inline void RetainRows(int group, std::span<const uint32_t> kept, SequenceCache* cache) {
  const size_t num_rows = cache->positions(group).size();
  std::vector<uint32_t> removed;
  removed.reserve(num_rows - kept.size());
  auto next = kept.begin();
  for (uint32_t row = 0; row < num_rows; ++row) {
    if (next != kept.end() && *next == row) {
      ++next;
    } else {
      removed.push_back(row);
    }
  }
  assert(next == kept.end() && "indices must ascend strictly");
  cache->Remove(group, removed);
}

}  // namespace ebb

#endif  // EBB_KV_RETAIN_FOR_TEST_H_
