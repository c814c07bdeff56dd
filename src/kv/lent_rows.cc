#include "src/kv/lent_rows.h"

namespace ebb {

void LentRows::Find(const GroupTable& own_table, const GroupTable* lender_table) {
  num_pages_ = 0;
  const TokenTable& own = own_table.rows;
  if (lender_table == nullptr || own.num_rows(Tier::kT1) == 0) return;
  const TokenTable& lender = lender_table->rows;
  const auto positions = own_table.FullPositions();
  const auto slots = own_table.FullSlots();
  const auto page_end = static_cast<uint32_t>(own.page_end());
  slots_.assign(slots.begin(), slots.end());
  lent_.assign(page_end, 0);
  for (size_t page = 0; page < page_end; ++page) {
    if (own.HasPage(page, Tier::kT1)) lent_[page] = ~own.UsedRows(page);
  }
  size_t i = 0;
  for (size_t j = 0; j < lender.num_rows(); ++j) {
    while (i < positions.size() && positions[i] < lender.positions()[j]) ++i;
    if (i == positions.size()) break;
    const uint32_t page = slots[i].page();
    const Slot from = lender.slots()[j];
    if (positions[i] != lender.positions()[j] || own.TierOf(page) != Tier::kT1 ||
        lender.TierOf(from.page()) != Tier::kT0) {
      continue;
    }
    slots_[i] = Slot(page_end + from.page(), from.row());
    lent_[page] |= uint64_t{1} << slots[i].row();
    if (lent_[page] == kWhole) ++num_pages_;
  }
  for (size_t row = 0; row < slots.size(); ++row) {
    if (!HasPage(slots[row].page())) slots_[row] = slots[row];
  }
}

size_t LentRows::table_bytes() const {
  return slots_.capacity() * sizeof(slots_[0]) + lent_.capacity() * sizeof(lent_[0]);
}

}  // namespace ebb
