// A page of one tier, as the sequence that holds it lists it, and the slots in its pages.
#ifndef EBB_ROWS_PAGE_REF_H_
#define EBB_ROWS_PAGE_REF_H_

#include <cstdint>

#include "ebb/types.h"
#include "src/base/page_units.h"
#include "src/rows/arena.h"

namespace ebb {

// A page by its id in its tier. It is of another sequence where it was allocated for that one,
// which shared it.
class PageRef {
 public:
  PageRef() = default;
  PageRef(Tier tier, PageId id) : id_(id), in_t1_(tier == Tier::kT1 ? 1 : 0) {}
  [[nodiscard]] bool empty() const { return id_ == kNoPage; }
  [[nodiscard]] PageId id() const { return id_; }
  // kT0 or kT1; unspecified for a page of T2, which stands in a list of its own.
  [[nodiscard]] Tier tier() const { return in_t1_ != 0 ? Tier::kT1 : Tier::kT0; }
  [[nodiscard]] bool is_of_another() const { return is_of_another_ != 0; }
  [[nodiscard]] PageRef OfAnother() const {
    PageRef ref = *this;
    ref.is_of_another_ = 1;
    return ref;
  }

 private:
  uint32_t id_ : 30 = kNoPage;
  uint32_t in_t1_ : 1 = 0;
  uint32_t is_of_another_ : 1 = 0;
};

// A row that goes to another slot of its stream.
struct SlotMove {
  Slot from;
  Slot to;
};

}  // namespace ebb

#endif  // EBB_ROWS_PAGE_REF_H_
