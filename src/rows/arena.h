// Arena allocates pages of one size, in the host's memory or a device's. It maps extents of 2 MiB
// (huge pages if the system provides them), hands out their pages to any sequence, layer and kv
// head, and unmaps an extent when its last page is freed. Compact() moves pages out of sparse
// extents, so that their memory returns to the system. The cap is hard: mapped bytes never exceed
// it. One empty extent may stay mapped while pages are in use, so that allocating and freeing a
// page makes no system calls; Compact() unmaps it.
//
// A page has an id, which stays the same, and an address, which changes when Compact() moves the
// page; generation() changes whenever pages were moved. A page may have several holders, and is
// freed when the last one releases it.
//
// A holder may have a floor: a number of pages of the cap that no other holder can take. A floor
// reserves a share of the cap, not memory; memory is mapped when pages are taken.
//
// Thread safety: none; all calls come from the engine's thread, between steps.
#ifndef EBB_ROWS_ARENA_H_
#define EBB_ROWS_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ebb/status.h"
#include "src/base/page_units.h"
#include "src/device/device.h"

namespace ebb {

using PageId = uint32_t;
// kNoPage is an id that no page has. An arena has at most 2^29 - 1 pages, so that PageRef can store
// an id and two flags in 32 bits.
inline constexpr PageId kNoPage = ~PageId{0} >> 3;

static_assert(kExtentBytes % kDeviceMemoryStep == 0);

// SharedCap limits the memory that several arenas may map together.
struct SharedCap {
  size_t cap_bytes = 0;
  size_t mapped_bytes = 0;
};

struct ArenaOptions {
  size_t page_bytes = 0;          // a multiple of 64, at most kExtentBytes
  size_t cap_bytes = 0;           // limit of mapped memory; at least one extent
  Device* device = &CpuDevice();  // provides the memory; outlives the arena
  MemoryKind memory = MemoryKind::kDevice;
  StatusCode full = StatusCode::kT0Full;            // code of the error at the cap
  std::shared_ptr<SharedCap> shared_cap = nullptr;  // a cap for several arenas; null: none
};

struct ArenaStats {
  size_t reserved_bytes = 0;  // mapped from the system
  size_t used_bytes = 0;      // in pages in use
  size_t peak_reserved_bytes = 0;
  size_t num_pages = 0;        // pages in use, each counted once
  size_t pledged_bytes = 0;    // unused parts of holders' floors
  size_t bytes_compacted = 0;  // copied by Compact() so far
  size_t table_bytes = 0;      // the arena's own tables of pages
};

// PageHolder identifies an owner of pages, such as a sequence, and has its floor.
struct PageHolder {
  size_t floor = 0;      // pages kept for it; see Arena::SetFloor()
  size_t num_pages = 0;  // allocated for it and not released yet

  [[nodiscard]] size_t NumPledged() const { return floor > num_pages ? floor - num_pages : 0; }
};

class Arena {
 public:
  // Returns the bytes of the extents that `num_pages` pages take.
  [[nodiscard]] static uint64_t BytesFor(uint64_t num_pages, size_t page_bytes);

  static Result<std::unique_ptr<Arena>> Create(const ArenaOptions& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Reserves `num_pages` more pages, so that as many calls of Take() succeed. Errors, after which
  // nothing has changed: ArenaOptions::full (the cap, or other holders' floors), OutOfMemory (the
  // system), Internal (a device has failed to move pages). `holder` is the owner of the pages;
  // null: one without a floor.
  Status Reserve(size_t num_pages, const PageHolder* holder = nullptr);
  // Takes one of the reserved pages and returns its id. The contents are unspecified; the page has
  // one holder. REQUIRES: a page is reserved.
  PageId Take(PageHolder* holder = nullptr);
  // Cancels the reservation of `num_pages` pages, and unmaps empty extents.
  void EndReservation(size_t num_pages);
  // Takes a page without a reservation. Errors: those of Reserve().
  Status Allocate(PageId* page, PageHolder* holder = nullptr);
  // Adds a holder to the page. The page does not count in the new holder's PageHolder::num_pages,
  // because it was allocated for another one.
  void Share(PageId page);
  // Removes a holder from the page; the last one frees it. `holder` is the one for which the page
  // was allocated; null if the page was allocated for none, or if another holder releases it.
  void Release(PageId page, PageHolder* holder = nullptr);
  // Sets the holder's floor: keeps `num_pages` pages for it, including those that it has, until the
  // next call; 0 must be set before the holder is destroyed. A page that others still hold after
  // the holder has released it counts for no floor. Errors: ArenaOptions::full, with nothing
  // changed, if too few pages are free of other holders and their floors.
  Status SetFloor(PageHolder* holder, size_t num_pages);
  [[nodiscard]] uint32_t num_holders(PageId page) const;
  // Returns the page's address, which is valid until generation() changes.
  [[nodiscard]] std::byte* Address(PageId page) const;
  // Returns how often Compact() has moved pages.
  [[nodiscard]] uint64_t generation() const;
  // Unmaps empty extents, and moves pages from the sparsest extents to free places of others as
  // long as this empties whole extents. Copies at most `max_bytes`; the next call continues.
  // Returns the bytes copied.
  size_t Compact(size_t max_bytes);
  // Returns how many more pages the holder can take under the cap and the floors of others.
  [[nodiscard]] size_t NumAvailable(const PageHolder& holder) const;
  [[nodiscard]] ArenaStats stats() const;
  [[nodiscard]] size_t page_bytes() const;
  // Returns a number greater than every page's id.
  [[nodiscard]] size_t page_end() const;
  [[nodiscard]] size_t cap_bytes() const;
  [[nodiscard]] MemoryKind memory() const;
  // Checks the arena's records, for tests. Errors: Internal if a record does not name its page or a
  // count is wrong.
  [[nodiscard]] Status Validate() const;

 private:
  Arena();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_ROWS_ARENA_H_
