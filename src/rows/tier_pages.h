// TierPages holds the pages of one tier of one sequence; its implementations keep them in memory
// (memory_rows.h) or in a file (file_rows.h). Pages are taken under a PageReservation and released
// under a PageReleases, which end in their destructors.
//
// Thread safety: the engine's thread changes pages, between steps; several threads may call
// Address() and generation() during a step.
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

  // Returns the page's address, valid until generation() changes; null if the page is in memory
  // only during a step or an edit.
  [[nodiscard]] virtual std::byte* Address(PageId page) const = 0;
  [[nodiscard]] virtual uint64_t generation() const = 0;

  // Calls visit(i, memory) for each page in order. During the call the page can be read, or
  // (kWrite) must be written with its new contents. Errors: those of a file, and of `visit`.
  enum class Access { kRead, kWrite };
  virtual Status Visit(std::span<const PageId> pages, Access access,
                       const std::function<Status(size_t i, std::byte* memory)>& visit) = 0;
  struct PageCopy {
    PageId from = kNoPage, to = kNoPage;
  };
  virtual Status Copy(std::span<const PageCopy> pages) = 0;

 protected:
  // Reserved holds the pages of a PageReservation that were not taken yet.
  struct Reserved {
    size_t num_pages = 0;                        // pages of any layer, for an arena
    std::vector<std::vector<PageId>> of_layers;  // pages by layer, for a file
  };

 private:
  friend class PageReservation;
  friend class PageReleases;

  // Implement PageReservation's functions. Take() returns a new page of the layer, with one holder.
  virtual Status Reserve(std::span<const size_t> pages_of_layers, Reserved* reserved) = 0;
  virtual void EndReservation(Reserved* reserved) = 0;
  virtual PageId Take(int layer, Reserved* reserved) = 0;
  // Implement the functions of PageReleases.
  virtual void ReserveReleases(size_t num_pages) = 0;
  virtual void Release(PageRef page) = 0;
  virtual void EndReleases() = 0;
};

// PageReservation reserves pages of a tier for one sequence to take. End() or the destructor
// returns the pages that were not taken; other reservations stay as they are.
class PageReservation {
 public:
  // Makes a reservation of no pages yet. REQUIRES: `pages` outlives this.
  explicit PageReservation(TierPages* pages) : pages_(pages) {}
  ~PageReservation() {
    if (num_left_ > 0) End();
  }
  PageReservation(const PageReservation&) = delete;
  PageReservation& operator=(const PageReservation&) = delete;

  // Reserves pages so that pages_of_layers[l] calls of Take() of each layer l succeed, including
  // pages reserved earlier. Errors: T0Full, T1Full, OutOfMemory, IoError; nothing has changed then.
  Status Reserve(std::span<const size_t> pages_of_layers) {
    EBB_RETURN_IF_ERROR(pages_->Reserve(pages_of_layers, &reserved_));
    size_t num_pages = 0;
    for (const size_t of_layer : pages_of_layers) num_pages += of_layer;
    num_left_ = std::max(num_left_, num_pages);
    return OkStatus();
  }
  // Takes a page of the layer and returns its id. REQUIRES: it was reserved.
  PageId Take(int layer) {
    --num_left_;
    return pages_->Take(layer, &reserved_);
  }
  // Returns the pages that were not taken, and frees memory without pages.
  void End() {
    num_left_ = 0;
    pages_->EndReservation(&reserved_);
  }

 private:
  TierPages* const pages_;
  TierPages::Reserved reserved_;
  size_t num_left_ = 0;
};

// PageReleases releases many pages together, which is faster than one by one. The destructor
// completes the releases.
class PageReleases {
 public:
  // Allocates memory for `num_pages` releases, and may throw std::bad_alloc; further releases may
  // allocate memory later. REQUIRES: `pages` outlives this.
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
