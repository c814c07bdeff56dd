// Holds the parts of a SequenceCache, for its own source file and for SequenceState.
#ifndef EBB_KV_SEQUENCE_CACHE_IMPL_H_
#define EBB_KV_SEQUENCE_CACHE_IMPL_H_

#include <vector>

#include "src/kv/cache_health.h"
#include "src/kv/cache_layout.h"
#include "src/kv/compactor.h"
#include "src/kv/page_map.h"
#include "src/kv/page_sharing.h"
#include "src/kv/row_mover.h"
#include "src/kv/row_sorter.h"
#include "src/kv/row_views.h"
#include "src/kv/sequence_cache.h"
#include "src/kv/t1_reader.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

struct SequenceCache::Impl {
  Impl(const ModelShape& shape, const PageFormat& format, Granularity granularity,
       const CacheStores& shared)
      : layout(shape, granularity, format, shared.compressed,
               shared.t2 == nullptr ? 0 : shared.t2->page_bytes()),
        stores(OpenRowStores(shared, format)),
        tables(layout.num_groups()),
        pages(layout, stores),
        mover(layout, stores, shared.kernel, shared.key_metrics, shared.device, &tables, &pages,
              &health),
        compactor(layout, stores, &tables, &pages, &health),
        sorter(layout, stores, &tables, pages),
        reader(shape, layout, stores, &tables, &pages),
        views(layout, tables, pages, reader) {}

  // Checks that no rows were lost and that T1's file can still be written, so that rows can be read
  // and moved now.
  [[nodiscard]] Status CheckSound() const;

  const CacheLayout layout;
  const RowStores stores;
  GroupTables tables;
  PageMap pages;
  CacheHealth health;
  RowMover mover;
  Compactor compactor;
  RowSorter sorter;
  T1Reader reader;
  RowViews views;
  int64_t rows_evicted = 0;
  // Work space.
  std::vector<TablePage> added;
  std::vector<Tier> tiers;
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_IMPL_H_
