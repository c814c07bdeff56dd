// Memory for pages. An arena maps 2 MiB extents (huge pages where the system gives them) of the
// host's memory or of a device's, hands out pages of one size that any sequence, layer and head may
// hold, and unmaps an extent when its last page goes. Compact() moves pages out of sparse extents
// so that freed memory really returns to the system. The cap is hard: mapped bytes never exceed it.
// One empty extent may stay mapped while pages are held, so that a page that comes and goes costs
// no system calls; Compact() unmaps it.
//
// A page has an id, which stays, and an address, which changes when the page moves: generation()
// tells that some page has moved. Several may hold a page; it is freed when the last one releases
// it.
//
// A holder may have a floor: pages under the cap that are kept for it until it has them. Only the
// cap is divided so; memory is mapped when pages are taken.
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
// kNoPage is no page's id. An arena has at most 2^30 - 1 pages, so that PageRef can keep an id and
// two flags in 32 bits.
inline constexpr PageId kNoPage = ~PageId{0} >> 2;

static_assert(kExtentBytes % kDeviceMemoryStep == 0);

// SharedCap caps the memory that several arenas map together.
struct SharedCap {
  size_t cap_bytes = 0;
  size_t mapped_bytes = 0;
};

struct ArenaOptions {
  size_t page_bytes = 0;          // a multiple of 64, at most kExtentBytes
  size_t cap_bytes = 0;           // of mapped memory; at least one extent
  Device* device = &CpuDevice();  // whose memory it is; outlives the arena
  MemoryKind memory = MemoryKind::kDevice;
  StatusCode full = StatusCode::kT0Full;            // the code of errors that the cap causes
  std::shared_ptr<SharedCap> shared_cap = nullptr;  // a second cap; null: none
};

struct ArenaStats {
  size_t reserved_bytes = 0;  // mapped from the system
  size_t used_bytes = 0;      // in pages with a holder
  size_t peak_reserved_bytes = 0;
  size_t num_pages = 0;        // held by one or several
  size_t pledged_bytes = 0;    // kept for floors, in pages that their holders do not have yet
  size_t bytes_compacted = 0;  // copied by Compact() so far
  size_t table_bytes = 0;      // of the arena's own records of pages
};

// PageHolder takes pages of an arena, with a floor or without.
struct PageHolder {
  size_t floor = 0;      // pages that it can count on; see Arena::SetFloor()
  size_t num_pages = 0;  // that were allocated for it, and that it has not released

  [[nodiscard]] size_t NumPledged() const { return floor > num_pages ? floor - num_pages : 0; }
};

class Arena {
 public:
  // Returns the bytes of the extents of so many pages.
  [[nodiscard]] static uint64_t BytesFor(uint64_t num_pages, size_t page_bytes);

  static Result<std::unique_ptr<Arena>> Create(const ArenaOptions& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Reserves `num_pages` pages besides those that are reserved already, for as many calls of
  // Take(). ArenaOptions::full or OutOfMemory, and nothing changed, when the cap, the part of it
  // that is kept for others, or the system does not allow it; Internal from when a device failed to
  // move pages on. holder: the owner of the pages; null: one without a floor.
  Status Reserve(size_t num_pages, const PageHolder* holder = nullptr);
  // Takes one of the reserved pages, contents unspecified, with one holder. REQUIRES: there is one.
  PageId Take(PageHolder* holder = nullptr);
  // Gives back so many reserved pages, and unmaps empty extents.
  void EndReservation(size_t num_pages);
  // Takes a page that was not reserved.
  Status Allocate(PageId* page, PageHolder* holder = nullptr);
  // Adds a holder of the page. PageHolder::num_pages of that holder does not count the page,
  // because it was not allocated for it.
  void Share(PageId page);
  // Removes a holder of the page, and frees the page with its last holder. `holder` is the one for
  // which the page was allocated; null if there was none, or if it is not the one that releases.
  void Release(PageId page, PageHolder* holder = nullptr);
  // Keeps room for so many pages of the holder's, those that it has among them, until it asks for
  // another number: 0 when it goes. A page that others still hold when the holder releases it is no
  // longer counted for any holder. ArenaOptions::full, and nothing changed, when fewer pages are
  // neither taken nor kept for others.
  Status SetFloor(PageHolder* holder, size_t num_pages);
  [[nodiscard]] uint32_t num_holders(PageId page) const;
  // Returns the page's address, which is valid until generation() changes.
  [[nodiscard]] std::byte* Address(PageId page) const;
  // Counts the times that Compact() moved pages.
  [[nodiscard]] uint64_t generation() const;
  // Unmaps empty extents, and moves pages from the sparsest extents into holes of the others while
  // whole extents can be freed so, copying at most `max_bytes`; the next call goes on where this
  // one had to stop. Returns the bytes copied.
  size_t Compact(size_t max_bytes);
  // Returns how many pages the cap and the floors of others leave for the holder to take.
  [[nodiscard]] size_t NumAvailable(const PageHolder& holder) const;
  [[nodiscard]] ArenaStats stats() const;
  [[nodiscard]] size_t page_bytes() const;
  // Returns a number above the id of every page.
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
