// Shares pages between caches. A fork shares the pages that are nearly full and copies the others;
// a fork of the first rows alone shares only full pages. A shared page is sealed in its tables, and
// no cache writes to it.
#ifndef EBB_KV_PAGE_SHARING_H_
#define EBB_KV_PAGE_SHARING_H_

#include <optional>

#include "ebb/report.h"
#include "ebb/status.h"
#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

// CachePages names the tables and pages of one cache.
struct CachePages {
  GroupTables& tables;
  PageMap& pages;
};

// CacheFork copies the rows of one cache into a cache without rows.
class CacheFork {
 public:
  // Prepares to copy all rows, or only those at positions before `end`. REQUIRES: both caches have
  // this layout; both have called FindAddresses(); all arguments outlive the object.
  CacheFork(const CacheLayout& layout, const CachePages& from, const CachePages& to,
            std::optional<Position> end)
      : layout_(layout), from_(from), to_(to), end_(end) {}

  // Copies the rows. Errors: T0Full, T1Full, OutOfMemory, those of a file. After an error the new
  // cache can only be destroyed.
  Status Run();

 private:
  // Copies the tables. May throw std::bad_alloc.
  [[nodiscard]] GroupTables::Tables CopyTables() const;
  // Reserves memory for all pages that will be copied.
  Status Reserve(ReservedPages* reserved) const;
  Status ShareOrCopy(ReservedPages* reserved);
  // Returns whether sharing the page saves more than the lost free slots cost. `table` is the
  // fork's, which may have fewer rows of the page than the other cache.
  [[nodiscard]] bool IsWorthSharing(const TokenTable& table, size_t page) const;

  const CacheLayout& layout_;
  const CachePages from_;
  const CachePages to_;
  const std::optional<Position> end_;  // nullopt: takes all rows
};

// Copies the pages of T0 that other caches share, so that this cache may change the contents of its
// rows. Errors: T0Full, after which nothing has changed.
[[nodiscard]] Status CopySharedT0Pages(const CacheLayout& layout, const RowStores& stores,
                                       const CachePages& cache);

// Unseals the pages that no other cache shares any more.
void UnsealOwnPages(const PageMap& pages, const GroupTables& tables);

// Adds the bytes of pages that other caches share to the accounting's shared bytes.
void AddSharedBytes(const CacheLayout& layout, const PageMap& pages, const GroupTables& tables,
                    CacheAccounting* sum);

}  // namespace ebb

#endif  // EBB_KV_PAGE_SHARING_H_
