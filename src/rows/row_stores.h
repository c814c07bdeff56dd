// The tiers of one sequence, in whatever memory or file an engine has for them.
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
  std::unique_ptr<TierRows> t1;         // null: there is none
  std::unique_ptr<CompressedPages> t2;  // null: there is none
};

// format: of the rows in T0 and T1. What `stores` names outlives them.
[[nodiscard]] RowStores OpenRowStores(const CacheStores& stores, const PageFormat& format);

}  // namespace ebb

#endif  // EBB_ROWS_ROW_STORES_H_
