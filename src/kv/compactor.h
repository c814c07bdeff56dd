// Compacts pages: moves rows out of sparse pages into free slots of other pages of the same tier,
// so that whole pages become free.
#ifndef EBB_KV_COMPACTOR_H_
#define EBB_KV_COMPACTOR_H_

#include <cstddef>
#include <span>
#include <vector>

#include "src/kv/cache_health.h"
#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

class Compactor {
 public:
  // Makes a compactor. REQUIRES: all arguments outlive it.
  Compactor(const CacheLayout& layout, const RowStores& stores, GroupTables* tables, PageMap* pages,
            CacheHealth* health)
      : layout_(layout), stores_(stores), tables_(tables), pages_(pages), health_(health) {}

  // Compacts all tables; see SequenceCache::Compact(). REQUIRES: CacheHealth::Check() is OK, and
  // PageMap::FindAddresses() was called.
  size_t Compact(size_t max_bytes);

 private:
  // TableMoves holds planned moves within one table.
  struct TableMoves {
    const GroupTable* table = nullptr;
    std::vector<SlotMove> moves;
    std::vector<TablePage> freed;  // by the moves, to be released after them
  };

  void CompactTables(size_t max_bytes, size_t* num_bytes);
  [[nodiscard]] std::span<const Tier> TiersToCompact() const;
  // Adds the moves that compacting the table needs, as long as num_bytes stays below max_bytes.
  void Plan(GroupTable* table, Tier tier, size_t max_bytes, size_t* num_bytes,
            std::vector<TableMoves>* plans) const;
  Status CarryOut(std::span<const TableMoves> plans, Tier tier);
  void CompactCompressed(GroupTable* table, size_t max_bytes, size_t* num_bytes);

  const CacheLayout& layout_;
  const RowStores& stores_;
  GroupTables* const tables_;
  PageMap* const pages_;
  CacheHealth* const health_;
  size_t next_ = 0;  // the table that the next call begins with, so that none starves
};

}  // namespace ebb

#endif  // EBB_KV_COMPACTOR_H_
