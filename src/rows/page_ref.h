// PageRef identifies a page in the list of pages that a sequence keeps for each stream.
#ifndef EBB_ROWS_PAGE_REF_H_
#define EBB_ROWS_PAGE_REF_H_

#include <cstdint>

#include "ebb/types.h"
#include "src/base/page_units.h"
#include "src/rows/arena.h"

namespace ebb {

// PageRef is a page's id and tier. is_of_another() is true if the page was allocated for another
// sequence, which shares it with this one.
class PageRef {
 public:
  PageRef() = default;
  PageRef(Tier tier, PageId id) : id_(id), tier_(static_cast<uint32_t>(tier)) {}
  [[nodiscard]] bool empty() const { return id_ == kNoPage; }
  [[nodiscard]] PageId id() const { return id_; }
  [[nodiscard]] Tier tier() const { return static_cast<Tier>(tier_); }
  [[nodiscard]] bool is_of_another() const { return is_of_another_ != 0; }
  [[nodiscard]] PageRef OfAnother() const {
    PageRef ref = *this;
    ref.is_of_another_ = 1;
    return ref;
  }

 private:
  uint32_t id_ : 29 = kNoPage;
  uint32_t tier_ : 2 = 0;
  uint32_t is_of_another_ : 1 = 0;
};

// SlotMove describes the move of a row to another slot of its stream.
struct SlotMove {
  Slot from;
  Slot to;
};

}  // namespace ebb

#endif  // EBB_ROWS_PAGE_REF_H_
