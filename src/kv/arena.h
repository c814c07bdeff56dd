// Memory for pages. An arena maps 2 MiB extents (huge pages where the system gives them), hands out
// pages of one size that any sequence, layer and head may own, and unmaps an extent when its last
// page goes. Compact() moves pages out of sparse extents so that freed memory really returns to the
// system. The cap is hard: mapped bytes never exceed it.
//
// A page that moves changes its address: the arena writes the new address into the owner's slot
// (PageSlot), which must stay where it is while it owns the page.
//
// Thread safety: none; all calls come from the engine's thread, between steps.
#ifndef EBB_KV_ARENA_H_
#define EBB_KV_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ebb/status.h"

namespace ebb {

inline constexpr size_t kExtentBytes = size_t{2} << 20;

struct ArenaOptions {
  size_t page_bytes = 0;      // a multiple of 64, at most kExtentBytes
  size_t cap_bytes = 0;       // of mapped memory; at least one extent
};

struct ArenaStats {
  size_t reserved_bytes = 0;  // mapped from the system
  size_t used_bytes = 0;      // in pages that somebody owns
  size_t peak_reserved_bytes = 0;
  size_t num_pages = 0;       // owned
  size_t bytes_compacted = 0;  // copied by Compact() so far
};

class Arena {
 public:
  static Result<std::unique_ptr<Arena>> Create(const ArenaOptions& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes sure that the next `num_pages` calls of Allocate() succeed. ResourceExhausted, and
  // nothing changed, when the cap or the system does not allow it.
  Status Reserve(size_t num_pages);
  // Writes the address of a page (contents unspecified) into *slot and remembers slot as its owner.
  Status Allocate(std::byte** slot);
  // Takes back the page at *slot and sets *slot to null.
  void Free(std::byte** slot);
  // Moves pages from the sparsest extents into holes of the others while that frees whole extents,
  // copying at most `max_bytes`. Returns the bytes copied.
  size_t Compact(size_t max_bytes);
  [[nodiscard]] ArenaStats stats() const;
  [[nodiscard]] size_t page_bytes() const;
  [[nodiscard]] size_t cap_bytes() const;

 private:
  Arena();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_KV_ARENA_H_
