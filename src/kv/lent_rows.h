// Finds the rows that a cache can read from another cache, its lender, instead of staging them from
// T1: whole pages of T1 whose rows all lie, with the same contents, in the lender's T0. A result is
// valid for one step.
#ifndef EBB_KV_LENT_ROWS_H_
#define EBB_KV_LENT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/tables/group_table.h"

namespace ebb {

class LentRows {
 public:
  // Finds the lent rows again; without a lender (null) there are none. REQUIRES: the lender has no
  // rows in T2.
  void Find(const GroupTable& own_table, const GroupTable* lender_table);
  [[nodiscard]] bool empty() const { return num_pages_ == 0; }
  // Returns how many T1 pages of `own` need not be staged.
  [[nodiscard]] size_t num_pages() const { return num_pages_; }
  [[nodiscard]] bool HasPage(size_t page) const { return !empty() && lent_[page] == kWhole; }
  // Returns the slots of the full rows of `own`. Slots of lent rows refer to the lender's pages,
  // which are numbered after all pages of `own`.
  [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
  [[nodiscard]] size_t table_bytes() const;

 private:
  static constexpr uint64_t kWhole = ~uint64_t{0};

  std::vector<Slot> slots_;     // [rows]
  std::vector<uint64_t> lent_;  // [own pages]: bit r: row r is lent or not there
  size_t num_pages_ = 0;
};

}  // namespace ebb

#endif  // EBB_KV_LENT_ROWS_H_
