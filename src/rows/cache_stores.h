// The memory and files that the caches of an engine share.
#ifndef EBB_ROWS_CACHE_STORES_H_
#define EBB_ROWS_CACHE_STORES_H_

#include "src/attention/rows.h"
#include "src/device/device.h"

namespace ebb {

class Arena;
class PageFile;
struct AttentionKernel;

// CacheStores names the arenas and the file in which an engine's caches keep rows. REQUIRES: all
// outlive the caches.
struct CacheStores {
  Arena* t0 = nullptr;          // pages of the cache's format, in the device's memory
  Arena* t1 = nullptr;          // the same: T1 in the host's memory
  PageFile* t1_file = nullptr;  // the same: T1 in a file instead
  Arena* t2 = nullptr;          // pages of `compressed`, in the device's memory or the host's
  CompressedFormat compressed;
  const AttentionKernel* kernel = nullptr;  // knows the formats; needed for T2
  Device* device = &CpuDevice();
};

}  // namespace ebb

#endif  // EBB_ROWS_CACHE_STORES_H_
