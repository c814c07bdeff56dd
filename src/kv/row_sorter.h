// Puts the rows of tables in order of position. Each step that drops a row and adds one gives the
// new row the old one's slot, so that in the end neighbours lie anywhere; attention reads them in
// order of position, and memory that is not read in its own order comes half as fast where it is
// slow.
#ifndef EBB_KV_ROW_SORTER_H_
#define EBB_KV_ROW_SORTER_H_

#include <cstddef>

#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

class RowSorter {
 public:
  // All outlive it.
  RowSorter(const CacheLayout& layout, const RowStores& stores, GroupTables* tables,
            const PageMap& pages)
      : layout_(layout), stores_(stores), tables_(tables), pages_(pages) {}

  // See SequenceCache::Sort(). REQUIRES: addresses are found.
  size_t Sort(size_t max_bytes);

 private:
  // Returns the bytes copied.
  size_t SortTable(GroupTable* table) const;

  const CacheLayout& layout_;
  const RowStores& stores_;
  GroupTables* const tables_;
  const PageMap& pages_;
  size_t next_ = 0;  // the table that the next call begins with, so that none starves
};

}  // namespace ebb

#endif  // EBB_KV_ROW_SORTER_H_
