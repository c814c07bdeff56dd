#include "src/kv/row_views.h"

#include <algorithm>
#include <cassert>

namespace ebb {

RowsView RowViews::View(int layer, int kv_head) const {
  assert(pages_.HasAddresses());
  const int stream = layout_.StreamOf(layer, kv_head);
  const int group = layout_.GroupOf(stream);
  const GroupTable& table = tables_.Of(group);
  return {.pages = reader_.PagesOf(stream).data(),
          .slots = reader_.SlotsOf(table),
          .positions = table.FullPositions(),
          .last_visible = table.FullLastVisible(),
          .window = layout_.WindowOf(group)};
}

CompressedRows RowViews::Compressed(int layer, int kv_head) const {
  assert(pages_.HasAddresses());
  const int stream = layout_.StreamOf(layer, kv_head);
  return {.pages = pages_.stream(stream).pages.data(),
          .slots = TableOf(stream).CompressedSlots(),
          .key_centre = pages_.stream(stream).CentreOfKeys()};
}

RowViews::Indices RowViews::IndicesOf(int layer, int kv_head) const {
  const GroupTable& table = TableOf(layout_.StreamOf(layer, kv_head));
  return {.full = table.FullIndices(), .compressed = table.CompressedIndices()};
}

RowAddress RowViews::Row(int layer, int kv_head, uint32_t index) const {
  assert(pages_.HasAddresses());
  const int stream = layout_.StreamOf(layer, kv_head);
  const std::span<const Slot> slots = TableOf(stream).FullSlots();
  assert(index < slots.size());
  return pages_.RowAt(pages_.stream(stream), slots[index]);
}

RowViews::RowsOfTier RowViews::RowsIn(Tier tier, int layer, int kv_head) const {
  assert(pages_.HasAddresses());
  const int index = layout_.StreamOf(layer, kv_head);
  const Stream& stream = pages_.stream(index);
  const GroupTable::RowsOfTier& rows = TableOf(index).by_tier[static_cast<size_t>(tier)];
  const auto& pages = tier == Tier::kT0 ? stream.pages : stream.t1_pages;
  return {.view = {.pages = pages.data(), .slots = rows.slots}, .indices = rows.indices};
}

RowViews::Counts RowViews::CountsOf(int layer, int kv_head) const {
  const int stream = layout_.StreamOf(layer, kv_head);
  const TokenTable& rows = TableOf(stream).rows;
  const size_t in_t1 = rows.num_pages(Tier::kT1);
  return {.pages = reader_.PagesOf(stream).size(),
          .rows_in_t1 = rows.num_rows(Tier::kT1),
          .pages_in_t1 = in_t1 - std::min(in_t1, reader_.num_lent_pages())};
}

size_t RowViews::most_pages() const {
  size_t most = 0;
  for (int i = 0; i < layout_.num_streams(); ++i) most = std::max(most, reader_.PagesOf(i).size());
  return most;
}

bool RowViews::HasCompressedRows() const {
  // Every layer of a step asks, and most caches have no T2 at all, so that is checked first.
  return pages_.PagesOf(Tier::kT2) != nullptr && tables_.HasCompressedRows();
}

}  // namespace ebb
