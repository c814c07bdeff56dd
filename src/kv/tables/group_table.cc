#include "src/kv/tables/group_table.h"

#include <algorithm>

namespace ebb {

size_t GroupTable::NumFirstRows() const {
  const std::span<const Position> all = FullPositions();
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

void GroupTable::ReserveRows(size_t num_rows) {
  rows.ReserveRows(num_rows);
  if (!HasCompressed()) return;
  const size_t total = full_.slots.size() + num_rows;
  GrowTo(&full_.slots, total);
  GrowTo(&full_.indices, total);
  GrowTo(&full_positions_, total);
  if (!full_last_visible_.empty()) GrowTo(&full_last_visible_, total);
}

void GroupTable::Append(Position first, size_t num_rows, std::vector<TablePage>* added) {
  ReserveRows(num_rows);
  const size_t before = rows.num_rows();
  rows.Append(first, num_rows, added);
  if (!HasCompressed()) return;
  for (size_t i = before; i < rows.num_rows(); ++i) {
    full_.slots.push_back(rows.slots()[i]);
    full_.indices.push_back(static_cast<uint32_t>(i));
    full_positions_.push_back(rows.positions()[i]);
    if (!full_last_visible_.empty()) full_last_visible_.push_back(kVisibleForEver);
  }
}

void GroupTable::SetLastVisible(uint32_t index, Position last) {
  rows.SetLastVisible(index, last);
  if (!HasCompressed()) return;
  if (rows.last_visible().empty()) return full_last_visible_.clear();
  if (full_last_visible_.empty()) full_last_visible_.resize(full_.slots.size(), kVisibleForEver);
  const auto at = std::ranges::lower_bound(full_.indices, index);
  full_last_visible_[static_cast<size_t>(at - full_.indices.begin())] = last;
}

void GroupTable::ListFormats() {
  for (RowsOfFormat* list : {&full_, &compressed_}) {
    list->slots.clear();
    list->indices.clear();
  }
  full_positions_.clear();
  full_last_visible_.clear();
  if (!HasCompressed()) return;
  const size_t num_full = rows.num_full_rows(), num_compressed = rows.num_rows(Tier::kT2);
  const std::span<const Position> last_visible = rows.last_visible();
  GrowTo(&full_.slots, num_full);
  GrowTo(&full_.indices, num_full);
  GrowTo(&full_positions_, num_full);
  if (!last_visible.empty()) GrowTo(&full_last_visible_, num_full);
  GrowTo(&compressed_.slots, num_compressed);
  GrowTo(&compressed_.indices, num_compressed);
  const std::span<const Slot> slots = rows.slots();
  for (uint32_t i = 0; i < slots.size(); ++i) {
    const bool is_full = rows.TierOf(slots[i]) != Tier::kT2;
    RowsOfFormat& list = is_full ? full_ : compressed_;
    list.slots.push_back(slots[i]);
    list.indices.push_back(i);
    if (!is_full) continue;
    full_positions_.push_back(rows.positions()[i]);
    if (!last_visible.empty()) full_last_visible_.push_back(last_visible[i]);
  }
}

void GroupTable::SplitByTier() {
  for (RowsOfTier& of_tier : by_tier) {
    of_tier.slots.clear();
    of_tier.indices.clear();
  }
  const std::span<const Slot> slots = rows.slots();
  for (uint32_t i = 0; i < slots.size(); ++i) {
    const Tier tier = rows.TierOf(slots[i]);
    if (tier == Tier::kT2) continue;
    by_tier[static_cast<size_t>(tier)].slots.push_back(slots[i]);
    by_tier[static_cast<size_t>(tier)].indices.push_back(i);
  }
}

size_t GroupTable::BytesFor(const TableSize& size, size_t num_groups) {
  const size_t bytes = sizeof(GroupTable) - sizeof(TokenTable) + num_groups * sizeof(int) +
                       TokenTable::BytesFor(size.full_rows + size.compressed_rows,
                                            size.full_pages + size.compressed_pages);
  if (size.compressed_rows == 0) return bytes;
  return bytes + MappedBytes<Slot>(size.full_rows) + MappedBytes<uint32_t>(size.full_rows) +
         MappedBytes<Position>(size.full_rows) + MappedBytes<Slot>(size.compressed_rows) +
         MappedBytes<uint32_t>(size.compressed_rows);
}

size_t GroupTable::table_bytes() const {
  size_t bytes = sizeof(GroupTable) - sizeof(TokenTable) + rows.table_bytes() +
                 groups.capacity() * sizeof(int) +
                 (full_positions_.capacity() + full_last_visible_.capacity()) * sizeof(Position);
  for (const RowsOfFormat* list : {&full_, &compressed_}) {
    bytes += list->slots.capacity() * sizeof(Slot) + list->indices.capacity() * sizeof(uint32_t);
  }
  for (const RowsOfTier& of_tier : by_tier) {
    bytes +=
        of_tier.slots.capacity() * sizeof(Slot) + of_tier.indices.capacity() * sizeof(uint32_t);
  }
  return bytes;
}

Status GroupTable::Validate() const {
  EBB_RETURN_IF_ERROR(rows.Validate());
  GroupTable fresh = *this;
  fresh.ListFormats();
  const bool same = fresh.full_ == full_ && fresh.compressed_ == compressed_ &&
                    fresh.full_positions_ == full_positions_ &&
                    fresh.full_last_visible_ == full_last_visible_;
  return same ? OkStatus() : Internal("the lists of rows by format are stale");
}

}  // namespace ebb
