// Sorts the rows of tables by position. A step that evicts a row and adds one reuses the slot, so
// that in time neighbouring positions lie anywhere in memory. Attention reads rows in order of
// position, and memory that is slow delivers half as fast when it is not read in its own order.
#ifndef EBB_KV_ROW_SORTER_H_
#define EBB_KV_ROW_SORTER_H_

#include <cstddef>

#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

class RowSorter {
 public:
  // Makes a sorter. REQUIRES: all arguments outlive it.
  RowSorter(const CacheLayout& layout, const RowStores& stores, GroupTables* tables,
            const PageMap& pages)
      : layout_(layout), stores_(stores), tables_(tables), pages_(pages) {}

  // Sorts tables until `max_bytes` are copied; see SequenceCache::Sort(). REQUIRES: FindAddresses()
  // was called.
  size_t Sort(size_t max_bytes);

 private:
  // Sorts one table and returns the bytes copied.
  size_t SortTable(GroupTable* table) const;

  const CacheLayout& layout_;
  const RowStores& stores_;
  GroupTables* const tables_;
  const PageMap& pages_;
  size_t next_ = 0;  // the table that the next call begins with, so that none starves
};

}  // namespace ebb

#endif  // EBB_KV_ROW_SORTER_H_
