// Rows that a cache reads in another one, its lender, instead of bringing them from T1: whole pages
// of T1 whose rows all lie in the lender's T0 too, with the same contents. For one step at a time.
#ifndef EBB_KV_LENT_ROWS_H_
#define EBB_KV_LENT_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/tables/token_table.h"

namespace ebb {

class LentRows {
 public:
  // Looks for them again; `lender` null: there are none.
  void Find(const TokenTable& own, const TokenTable* lender);
  [[nodiscard]] bool empty() const { return num_pages_ == 0; }
  // Pages of `own` in T1 that need not be brought.
  [[nodiscard]] size_t num_pages() const { return num_pages_; }
  [[nodiscard]] bool HasPage(size_t page) const { return !empty() && lent_[page] == kWhole; }
  // The slots of all rows of `own`, in pages that are its own and then the lender's.
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
