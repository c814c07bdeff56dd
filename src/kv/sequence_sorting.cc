// Rows are put in order of position. Each step that drops a row and adds one gives the new row the
// old one's slot, so that in the end neighbours lie anywhere; attention reads them in order of
// position, and memory that is not read in its own order comes half as fast where it is slow.
#include <algorithm>
#include <new>
#include <vector>

#include "src/base/fetch_ahead.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// A row in so many may stray before all are put in order: per stray so many rows are copied.
constexpr size_t kRowsPerStray = 16;
// Rows wanted soon, one after another from anywhere.
constexpr size_t kRowsAhead = 8;

// Rows are counted only once so many took new slots that it would be worth it if all of them
// strayed.
bool IsWorthSorting(TokenTable* table) {
  const size_t least = std::max<size_t>(kRowsPerPage, table->num_rows() / kRowsPerStray);
  return table->num_pages(Tier::kT1) == 0 && table->num_sealed() == 0 &&
         table->num_slots_taken() >= least && table->CountStrays() >= least;
}

}  // namespace

size_t SequenceCache::Impl::SortTable(GroupTable* group_table) {
  const size_t stride = format.RowStride();
  std::vector<std::byte> beside(RowBytes());
  std::vector<SlotMove> moves;
  group_table->full.Sort(&moves);
  for (const int group : group_table->groups) {
    for (const Stream& stream : StreamsOf(group)) {
      const auto at = [&](Slot slot) {
        return slot == kBeside ? RowAddress{beside.data(), beside.data() + stride}
                               : RowAt(stream, slot);
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
  return moves.size() * RowBytes() * NumStreams(*group_table);
}

size_t SequenceCache::Sort(size_t max_bytes) {
  Impl& c = *impl_;
  if (!c.stores.t0->GainsByOrder()) return 0;
  c.Refresh();
  size_t num_bytes = 0;
  const size_t num_tables = c.tables.size();
  const size_t first = c.next_sorted;
  for (size_t i = first; i < first + num_tables && num_bytes < max_bytes; ++i) {
    GroupTable* group_table = c.tables[i % num_tables].get();
    if (!IsWorthSorting(&group_table->full)) continue;
    try {
      num_bytes += c.SortTable(group_table);
    } catch (const std::bad_alloc&) {
      return num_bytes;  // rows out of order are slower, and nothing else
    }
    c.next_sorted = (i + 1) % num_tables;
  }
  return num_bytes;
}

}  // namespace ebb
