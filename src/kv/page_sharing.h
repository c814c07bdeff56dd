// Pages that several caches hold: a fork shares those that are nearly full and copies the others; a
// fork of the first rows alone shares those that are full. A page that another cache holds too is
// sealed in its table, and no cache writes to it.
#ifndef EBB_KV_PAGE_SHARING_H_
#define EBB_KV_PAGE_SHARING_H_

#include <optional>

#include "ebb/report.h"
#include "ebb/status.h"
#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

// The tables and pages of one cache.
struct CachePages {
  GroupTables& tables;
  PageMap& pages;
};

// Gives a cache without rows the rows of another one.
class CacheFork {
 public:
  // Takes the rows at positions before `end` alone, if there is one. The caches agree on `layout`;
  // addresses of both are found. All outlive it.
  CacheFork(const CacheLayout& layout, const CachePages& from, const CachePages& to,
            std::optional<Position> end)
      : layout_(layout), from_(from), to_(to), end_(end) {}

  // Errors, after which the new cache is only good for being destroyed: T0Full, T1Full,
  // OutOfMemory, those of a file.
  Status Run();

 private:
  // Makes the new tables. May throw std::bad_alloc.
  [[nodiscard]] GroupTables::Tables CopyTables() const;
  // Reserves memory for all pages that will be copied.
  Status Reserve(ReservedPages* reserved) const;
  Status ShareOrCopy(ReservedPages* reserved);
  // `table` is the fork's, which has no more rows of the page than the other cache.
  [[nodiscard]] bool IsWorthSharing(const TokenTable& table, size_t page) const;

  const CacheLayout& layout_;
  const CachePages from_;
  const CachePages to_;
  const std::optional<Position> end_;  // nullopt: takes all rows
};

// Copies the pages of T0 that other caches hold too, so that the contents of rows may change.
// T0Full, and nothing changed, when T0 has no room.
[[nodiscard]] Status CopySharedT0Pages(const CacheLayout& layout, const RowStores& stores,
                                       const CachePages& cache);

// Unseals pages that no other cache holds any more.
void UnsealOwnPages(const PageMap& pages, const GroupTables& tables);

// Counts the pages that other caches hold too as shared.
void AddSharedBytes(const CacheLayout& layout, const PageMap& pages, const GroupTables& tables,
                    CacheAccounting* sum);

}  // namespace ebb

#endif  // EBB_KV_PAGE_SHARING_H_
