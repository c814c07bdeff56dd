// Memory for pages. An arena maps 2 MiB extents (huge pages where the system gives them) of the
// host's memory or of a device's, hands out
// pages of one size that any sequence, layer and head may own, and unmaps an extent when its last
// page goes. Compact() moves pages out of sparse extents so that freed memory really returns to the
// system. The cap is hard: mapped bytes never exceed it. One empty extent may stay mapped while
// pages are owned, so that a page that comes and goes costs no system calls; Compact() unmaps it.
//
// A page that moves changes its address: the arena writes the new address into its owner's slot,
// which must stay where it is while it owns the page (or be replaced by Rebind()).
//
// Thread safety: none; all calls come from the engine's thread, between steps.
#ifndef EBB_KV_ARENA_H_
#define EBB_KV_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ebb/status.h"
#include "src/base/page_units.h"
#include "src/device/device.h"

namespace ebb {

static_assert(kExtentBytes % kDeviceMemoryStep == 0);

struct ArenaOptions {
  size_t page_bytes = 0;          // a multiple of 64, at most kExtentBytes
  size_t cap_bytes = 0;           // of mapped memory; at least one extent
  Device* device = &CpuDevice();  // whose memory it is; outlives the arena
  MemoryKind memory = MemoryKind::kDevice;
};

struct ArenaStats {
  size_t reserved_bytes = 0;  // mapped from the system
  size_t used_bytes = 0;      // in pages that somebody owns
  size_t peak_reserved_bytes = 0;
  size_t num_pages = 0;        // owned
  size_t bytes_compacted = 0;  // copied by Compact() so far
  size_t table_bytes = 0;      // of the arena's own records of pages and owners
};

class Arena {
 public:
  static Result<std::unique_ptr<Arena>> Create(const ArenaOptions& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes sure that the next `num_pages` calls of Allocate() succeed, until Compact() is called; a
  // smaller promise given before is part of this one. ResourceExhausted, and nothing changed, when
  // the cap or the system does not allow it.
  Status Reserve(size_t num_pages);
  // Writes the address of a page (contents unspecified) into *slot and remembers slot as its owner.
  Status Allocate(std::byte** slot);
  // Takes back the page at *slot and sets *slot to null.
  void Free(std::byte** slot);
  // Whether *slot is a page of this arena that belongs to slot. Of any address.
  [[nodiscard]] bool Owns(std::byte* const* slot) const;
  // The page at *old_slot belongs to new_slot from now on; *old_slot becomes null.
  void Rebind(std::byte** old_slot, std::byte** new_slot);
  // Unmaps empty extents, and moves pages from the sparsest extents into holes of the others while
  // whole extents can be freed so, copying at most `max_bytes`; the next call goes on where this
  // one had to stop. Ends the promise of Reserve(). Returns the bytes copied.
  size_t Compact(size_t max_bytes);
  [[nodiscard]] ArenaStats stats() const;
  [[nodiscard]] size_t page_bytes() const;
  [[nodiscard]] size_t cap_bytes() const;
  // Internal when an owner's slot does not name its page or a count is wrong; for tests.
  [[nodiscard]] Status Validate() const;

 private:
  Arena();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_KV_ARENA_H_
