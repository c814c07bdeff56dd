// RowStores holds the tiers of one sequence, in the memory and the file that an engine has for
// them.
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

// Opens the tiers of a sequence, whose rows in T0 and T1 have the format `format`. REQUIRES: what
// `stores` names outlives them.
[[nodiscard]] RowStores OpenRowStores(const CacheStores& stores, const PageFormat& format);

}  // namespace ebb

#endif  // EBB_ROWS_ROW_STORES_H_
