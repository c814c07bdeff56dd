// CacheStores describes the memory and files that all caches of an engine share.
#ifndef EBB_ROWS_CACHE_STORES_H_
#define EBB_ROWS_CACHE_STORES_H_

#include <span>

#include "src/attention/rows.h"
#include "src/device/device.h"

namespace ebb {

class Arena;
class PageFile;
struct AttentionKernel;

// CacheStores points to the arenas and the file in which an engine's caches keep rows. REQUIRES:
// all outlive the caches.
struct CacheStores {
  Arena* t0 = nullptr;          // full-precision pages, in the memory steps compute in
  Arena* t1 = nullptr;          // T1 in the host's memory; null: in t1_file, or no T1
  PageFile* t1_file = nullptr;  // T1 in a file; null: in t1, or no T1
  Arena* t2 = nullptr;          // pages of `compressed`, on the device or the host
  CompressedFormat compressed;
  // Has the KeyMetric (src/attention/trellis.h) of each stream; empty: `compressed` uses none.
  std::span<const float> key_metrics;
  const AttentionKernel* kernel = nullptr;  // converts rows to and from `compressed`; needed for T2
  Device* device = &CpuDevice();
};

}  // namespace ebb

#endif  // EBB_ROWS_CACHE_STORES_H_
