#include "src/kv/tables/group_table.h"

#include <algorithm>

namespace ebb {

void GroupTable::Split(std::span<const uint32_t> rows, std::vector<uint32_t>* of_full,
                       std::vector<uint32_t>* of_compressed) const {
  of_full->clear();
  of_compressed->clear();
  if (compressed.num_rows() == 0) {
    of_full->assign(rows.begin(), rows.end());
    return;
  }
  auto at = full_rows.begin();
  for (const uint32_t row : rows) {
    at = std::lower_bound(at, full_rows.end(), row);
    const auto before = static_cast<uint32_t>(at - full_rows.begin());
    if (at != full_rows.end() && *at == row) {
      of_full->push_back(before);
    } else {
      of_compressed->push_back(row - before);
    }
  }
}

size_t GroupTable::NumFirstRows() const {
  const std::span<const Position> all = full.positions();
  // Positions ascend, so a position that equals its index has no gap before it, and bisection finds
  // the first gap.
  size_t low = 0, high = all.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const bool is_first = all[middle] == static_cast<Position>(middle);
    (is_first ? low : high) = is_first ? middle + 1 : middle;
  }
  return low;
}

void GroupTable::ReserveMerged(size_t num_rows) {
  if (compressed.num_rows() == 0) return;
  GrowTo(&positions, positions.size() + num_rows);
  GrowTo(&full_rows, full_rows.size() + num_rows);
}

void GroupTable::AppendMerged(Position first, size_t num_rows) {
  if (compressed.num_rows() == 0) return;
  for (size_t i = 0; i < num_rows; ++i) {
    full_rows.push_back(static_cast<uint32_t>(positions.size()));
    positions.push_back(first + static_cast<Position>(i));
  }
}

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
    of_tier.indices.clear();
  }
  const auto slots = full.slots();
  for (uint32_t i = 0; i < slots.size(); ++i) {
    RowsOfTier& of_tier = by_tier[static_cast<size_t>(full.TierOf(slots[i].page()))];
    of_tier.slots.push_back(slots[i]);
    of_tier.indices.push_back(full_rows.empty() ? i : full_rows[i]);
  }
}

size_t GroupTable::BytesFor(const TableSize& size, size_t num_groups) {
  size_t bytes = sizeof(GroupTable) - 2 * sizeof(TokenTable) + num_groups * sizeof(int) +
                 TokenTable::BytesFor(size.full_rows, size.full_pages) +
                 TokenTable::BytesFor(size.compressed_rows, size.compressed_pages);
  if (size.compressed_rows == 0) return bytes;
  return bytes + MappedBytes<Position>(size.full_rows + size.compressed_rows) +
         MappedBytes<uint32_t>(size.full_rows) + MappedBytes<uint32_t>(size.compressed_rows);
}

size_t GroupTable::table_bytes() const {
  size_t bytes = sizeof(GroupTable) - 2 * sizeof(TokenTable) + full.table_bytes() +
                 compressed.table_bytes() + groups.capacity() * sizeof(int) +
                 positions.capacity() * sizeof(Position) +
                 (full_rows.capacity() + compressed_rows.capacity()) * sizeof(uint32_t);
  for (const RowsOfTier& of_tier : by_tier) {
    bytes +=
        of_tier.slots.capacity() * sizeof(Slot) + of_tier.indices.capacity() * sizeof(uint32_t);
  }
  return bytes;
}

Status GroupTable::Validate() const {
  EBB_RETURN_IF_ERROR(full.Validate());
  EBB_RETURN_IF_ERROR(compressed.Validate());
  if (compressed.num_rows() == 0) {
    return positions.empty() && full_rows.empty()
               ? OkStatus()
               : Internal("positions are merged although T2 is empty");
  }
  GroupTable fresh = *this;
  fresh.MergePositions();
  const bool same = fresh.positions == positions && fresh.full_rows == full_rows &&
                    fresh.compressed_rows == compressed_rows;
  return same ? OkStatus() : Internal("merged positions are stale");
}

}  // namespace ebb
