#include "src/kv/group_table.h"

namespace ebb {

void GroupTable::MergePositions() {
  positions.clear();
  full_rows.clear();
  compressed_rows.clear();
  if (compressed.num_rows() == 0) return;
  GrowTo(&positions, num_rows());
  GrowTo(&full_rows, full.num_rows());
  GrowTo(&compressed_rows, compressed.num_rows());
  const auto a = full.positions();
  const auto b = compressed.positions();
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const auto row = static_cast<uint32_t>(positions.size());
    if (j == b.size() || (i < a.size() && a[i] < b[j])) {
      positions.push_back(a[i++]);
      full_rows.push_back(row);
    } else {
      positions.push_back(b[j++]);
      compressed_rows.push_back(row);
    }
  }
}

void GroupTable::SplitByTier() {
  for (RowsOfTier& of_tier : by_tier) {
    of_tier.slots.clear();
    of_tier.rows.clear();
  }
  const auto slots = full.slots();
  for (uint32_t i = 0; i < slots.size(); ++i) {
    RowsOfTier& of_tier = by_tier[static_cast<size_t>(full.TierOf(slots[i].page()))];
    of_tier.slots.push_back(slots[i]);
    of_tier.rows.push_back(full_rows.empty() ? i : full_rows[i]);
  }
}

}  // namespace ebb
