// The pages of one tier that one sequence holds. Where they lie is known to the implementations
// alone: memory_rows.h, file_rows.h.
//
// Thread safety: changes come from the engine's thread, between steps; Address() and generation()
// may be read by several threads in one.
#ifndef EBB_ROWS_TIER_PAGES_H_
#define EBB_ROWS_TIER_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "ebb/status.h"
#include "src/rows/arena.h"
#include "src/rows/page_ref.h"

namespace ebb {

class TierPages {
 public:
  TierPages() = default;
  virtual ~TierPages() = default;
  TierPages(const TierPages&) = delete;
  TierPages& operator=(const TierPages&) = delete;

  // Makes sure that so many calls of Take() of each layer succeed, until EndReservation(). One
  // sequence at a time has a reservation in a memory: EndReservation() ends all of it. Errors,
  // after which nothing has changed: ResourceExhausted, IoError.
  virtual Status Reserve(std::span<const size_t> pages_of_layers) = 0;
  // Takes back what was reserved and not taken.
  virtual void EndReservation() = 0;
  // A page of the layer with one holder. REQUIRES: it was reserved.
  virtual PageId Take(int layer) = 0;
  // One holder more, which is another sequence.
  virtual void Share(PageId page) = 0;
  // One holder less; the page goes with the last one. Pages released together go faster: they need
  // only be gone after EndReleases().
  virtual void Release(PageRef page) = 0;
  // Memory for that many releases. May throw std::bad_alloc, so that they need not.
  virtual void ReserveReleases(size_t num_pages) = 0;
  virtual void EndReleases() = 0;
  [[nodiscard]] virtual uint32_t num_holders(PageId page) const = 0;

  // Returns the page's address until generation() changes; null where only a step, or an edit,
  // brings it into memory.
  [[nodiscard]] virtual std::byte* Address(PageId page) const = 0;
  [[nodiscard]] virtual uint64_t generation() const = 0;

  // Calls visit(i, memory) for each page in order, while all of it can be read, or written with its
  // new contents. Errors: those of a file, and of `visit`.
  enum class Access { kRead, kWrite };
  virtual Status Visit(std::span<const PageId> pages, Access access,
                       const std::function<Status(size_t i, std::byte* memory)>& visit) = 0;
  struct PageCopy {
    PageId from = kNoPage, to = kNoPage;
  };
  virtual Status Copy(std::span<const PageCopy> pages) = 0;
};

}  // namespace ebb

#endif  // EBB_ROWS_TIER_PAGES_H_
