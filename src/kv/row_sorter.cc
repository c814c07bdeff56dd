#include "src/kv/row_sorter.h"

#include <algorithm>
#include <new>
#include <vector>

#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

// kRowsPerStray is the number of rows for each stray row from which sorting pays, because sorting
// copies about this many rows for each stray.
constexpr size_t kRowsPerStray = 16;
// kRowsAhead is how many moves ahead the sorter prefetches rows, because they lie anywhere in
// memory.
constexpr size_t kRowsAhead = 8;

// Returns whether sorting pays: whether there are enough strays, rows whose slot does not closely
// follow that of the previous row. Counts strays, which takes time, only if enough rows received
// new slots that sorting would pay if all of them were strays.
bool IsWorthSorting(TokenTable* table) {
  const size_t least = std::max<size_t>(kRowsPerPage, table->num_full_rows() / kRowsPerStray);
  return table->num_pages(Tier::kT1) == 0 && table->num_sealed() == 0 &&
         table->num_slots_taken() >= least && table->CountStrays() >= least;
}

}  // namespace

size_t RowSorter::SortTable(GroupTable* table) const {
  const PageFormat& format = layout_.format();
  const size_t stride = format.RowStride();
  std::vector<std::byte> spare(layout_.RowBytes());
  std::vector<SlotMove> moves;
  table->rows.Sort(&moves);
  table->ListFormats();
  for (const int group : table->groups) {
    for (const Stream& stream : pages_.StreamsOf(group)) {
      const auto at = [&](Slot slot) {
        return slot == kSpareSlot
                   ? RowAddress{spare.data(), spare.data() + format.PackedValueOffset()}
                   : pages_.RowAt(stream, slot);
      };
      for (size_t i = 0; i < moves.size(); ++i) {
        if (i + kRowsAhead < moves.size()) {
          const RowAddress soon = at(moves[i + kRowsAhead].from);
          FetchAhead(std::span(soon.key, stride));
          FetchAhead(std::span(soon.value, stride));
        }
        CopyRow(at(moves[i].from), at(moves[i].to), format);
      }
    }
  }
  return moves.size() * layout_.RowBytes() * layout_.NumStreamsOf(table->groups);
}

size_t RowSorter::Sort(size_t max_bytes) {
  if (!stores_.t0->GainsByOrder()) return 0;
  size_t num_bytes = 0;
  const size_t num_tables = tables_->size();
  const size_t first = next_;
  for (size_t i = first; i < first + num_tables && num_bytes < max_bytes; ++i) {
    GroupTable* table = tables_->all()[i % num_tables].get();
    if (!IsWorthSorting(&table->rows)) continue;
    try {
      num_bytes += SortTable(table);
    } catch (const std::bad_alloc&) {
      return num_bytes;  // rows out of order are slower, and nothing else
    }
    next_ = (i + 1) % num_tables;
  }
  return num_bytes;
}

}  // namespace ebb
