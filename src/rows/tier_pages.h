// TierPages holds the pages of one tier of one sequence; memory_rows.h and file_rows.h decide where
// they lie. Pages are taken under a PageReservation and released under a PageReleases; both end in
// their destructors.
//
// Thread safety: changes come from the engine's thread, between steps; Address() and generation()
// may be read by several threads in one.
#ifndef EBB_ROWS_TIER_PAGES_H_
#define EBB_ROWS_TIER_PAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

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

  // Adds another sequence as a holder of the page.
  virtual void Share(PageId page) = 0;
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

 protected:
  // Reserved holds the pages of one PageReservation that were not taken yet.
  struct Reserved {
    size_t num_pages = 0;                        // in an arena, whose pages are of any layer
    std::vector<std::vector<PageId>> of_layers;  // in a file
  };

 private:
  friend class PageReservation;
  friend class PageReleases;

  // Implement PageReservation. Take() returns a page of the layer with one holder.
  virtual Status Reserve(std::span<const size_t> pages_of_layers, Reserved* reserved) = 0;
  virtual void EndReservation(Reserved* reserved) = 0;
  virtual PageId Take(int layer, Reserved* reserved) = 0;
  // Implement PageReleases.
  virtual void ReserveReleases(size_t num_pages) = 0;
  virtual void Release(PageRef page) = 0;
  virtual void EndReleases() = 0;
};

// PageReservation reserves pages of a tier for one sequence to take. End() or the destructor
// returns the pages that were not taken; other reservations stay as they are.
class PageReservation {
 public:
  // Reserves nothing yet. `pages` outlives it.
  explicit PageReservation(TierPages* pages) : pages_(pages) {}
  ~PageReservation() {
    if (num_left_ > 0) End();
  }
  PageReservation(const PageReservation&) = delete;
  PageReservation& operator=(const PageReservation&) = delete;

  // Makes sure that so many calls of Take() of each layer succeed, those reserved earlier among
  // them. Errors, after which nothing has changed: T0Full, T1Full, OutOfMemory, IoError.
  Status Reserve(std::span<const size_t> pages_of_layers) {
    EBB_RETURN_IF_ERROR(pages_->Reserve(pages_of_layers, &reserved_));
    size_t num_pages = 0;
    for (const size_t of_layer : pages_of_layers) num_pages += of_layer;
    num_left_ = std::max(num_left_, num_pages);
    return OkStatus();
  }
  // Takes a page of the layer with one holder. REQUIRES: it was reserved.
  PageId Take(int layer) {
    --num_left_;
    return pages_->Take(layer, &reserved_);
  }
  // Gives back what was not taken, and memory in which no page lies.
  void End() {
    num_left_ = 0;
    pages_->EndReservation(&reserved_);
  }

 private:
  TierPages* const pages_;
  TierPages::Reserved reserved_;
  size_t num_left_ = 0;
};

// PageReleases releases pages together, which is faster than one by one. All are released when it
// is destroyed, at the latest.
class PageReleases {
 public:
  // Takes the memory for so many releases; may throw std::bad_alloc. Others may need memory
  // themselves. `pages` outlives it.
  explicit PageReleases(TierPages* pages, size_t num_pages = 0) : pages_(pages) {
    if (num_pages > 0) pages_->ReserveReleases(num_pages);
  }
  ~PageReleases() { pages_->EndReleases(); }
  PageReleases(const PageReleases&) = delete;
  PageReleases& operator=(const PageReleases&) = delete;

  // Removes this sequence as a holder of the page. The last holder frees the page.
  void Release(PageRef page) { pages_->Release(page); }

 private:
  TierPages* const pages_;
};

}  // namespace ebb

#endif  // EBB_ROWS_TIER_PAGES_H_
