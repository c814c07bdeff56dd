// RowStores holds the tiers of one sequence's cache, which lie in the arenas and the file of its
// engine.
#ifndef EBB_ROWS_ROW_STORES_H_
#define EBB_ROWS_ROW_STORES_H_

#include <memory>

#include "src/attention/rows.h"
#include "src/rows/cache_stores.h"
#include "src/rows/compressed_pages.h"
#include "src/rows/memory_rows.h"
#include "src/rows/tier_rows.h"

namespace ebb {

struct RowStores {
  std::unique_ptr<MemoryRows> t0;
  std::unique_ptr<TierRows> t1;         // null: there is no T1
  std::unique_ptr<CompressedPages> t2;  // null: there is no T2
};

// Makes the tiers of a sequence, with rows of format `format` in T0 and T1. REQUIRES: the arenas
// and the file of `stores` outlive the result.
[[nodiscard]] RowStores OpenRowStores(const CacheStores& stores, const PageFormat& format);

}  // namespace ebb

#endif  // EBB_ROWS_ROW_STORES_H_
