// Rows move out of sparse pages into holes of others of their tier.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// Ascending, each once.
std::vector<uint32_t> PagesOf(std::span<const SlotMove> moves, uint32_t SlotMove::*slot) {
  std::vector<uint32_t> pages;
  for (const SlotMove& move : moves) pages.push_back(move.*slot / kRowsPerPage);
  std::ranges::sort(pages);
  pages.erase(std::ranges::unique(pages).begin(), pages.end());
  return pages;
}

std::vector<uint32_t> Union(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

bool HasPagesToSpare(const TokenTable& table, Tier place) {
  return table.NumFreeSlots(place) >= kRowsPerPage;
}

}  // namespace

// What was moved to T1's file must be there before its tables change again: a write that fails
// then would break the sequence, and fails now for nothing.
std::span<const Tier> SequenceCache::Impl::TiersToCompact() {
  static constexpr std::array<Tier, 2> kBoth = {Tier::kT0, Tier::kT1};
  const auto spares = [](const auto& shared) { return HasPagesToSpare(shared->full, Tier::kT1); };
  if (!HasFile() || !std::ranges::any_of(tables, spares)) return kBoth;
  EditSize size;
  for (const auto& shared : tables) AddEdits(*shared, 0, &size);
  return SettleFile().ok() && ReserveEdits(size).ok() ? kBoth : std::span(kBoth).first(1);
}

void SequenceCache::Impl::MoveRowsWithin(const TableEdit& table, const Stream& stream,
                                         Tier place) const {
  const auto& pages = place == Tier::kT1 && IsRemote() ? stream.host_pages : stream.pages;
  const auto at = [&](uint32_t slot) { return RowAt(pages[slot / kRowsPerPage], slot); };
  for (const SlotMove& move : table.moves) CopyRow(at(move.from), at(move.to));
}

void SequenceCache::Impl::PlanCompaction(SharedTable* shared, Tier place, size_t max_bytes,
                                         size_t* num_bytes, std::vector<TableEdit>* tables) {
  const size_t bytes_per_move = RowBytes() * NumStreams(*shared);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  TableEdit table = {.shared = shared};
  shared->full.Compact(place, left / bytes_per_move, &table.moves, &table.freed);
  if (table.freed.empty()) return;
  if (place == Tier::kT1) {
    table.pages.writes = PagesOf(table.moves, &SlotMove::to);
    table.pages.reads = Union(table.pages.writes, PagesOf(table.moves, &SlotMove::from));
  }
  *num_bytes += table.moves.size() * bytes_per_move;
  tables->push_back(std::move(table));
}

Status SequenceCache::Impl::CompactTables(std::span<const TableEdit> tables, Tier place) {
  if (tables.empty()) return OkStatus();
  if (place == Tier::kT1 && stage != nullptr) stage->Forget();
  const DeviceCall call(stores.device);
  Status status = EditStreams(tables, [&](const TableEdit& table, const Stream& stream) {
    MoveRowsWithin(table, stream, place);
  });
  FreePagesOf(tables);
  return status;
}

void SequenceCache::Impl::CompactCompressed(SharedTable* shared, size_t max_bytes,
                                            size_t* num_bytes) {
  const size_t stride = stores.compressed.RowStride();
  const size_t bytes_per_move = stride * NumStreams(*shared);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  freed.clear();
  if (shared->compressed.num_rows() == 0) return;
  std::vector<SlotMove> moves;
  shared->compressed.Compact(Tier::kT0, left / bytes_per_move, &moves, &freed);
  const DeviceCall call(stores.device);
  for (const int group : shared->groups) {
    for (const Stream& stream : StreamsOf(group)) {
      for (const SlotMove& move : moves) {
        std::memcpy(CompressedAt(stream, move.to), CompressedAt(stream, move.from), stride);
      }
    }
  }
  FreeCompressed(shared);
  *num_bytes += moves.size() * bytes_per_move;
}

void SequenceCache::Impl::CompactAll(size_t max_bytes, size_t* num_bytes) {
  const std::span<const Tier> places = TiersToCompact();
  std::array<std::vector<TableEdit>, 2> edited;  // by place
  const size_t first = next_compacted;
  for (size_t i = first; i < first + tables.size() && *num_bytes < max_bytes; ++i) {
    SharedTable* shared = tables[i % tables.size()].get();
    const size_t before = *num_bytes;
    for (const Tier place : places) {
      PlanCompaction(shared, place, max_bytes, num_bytes, &edited[static_cast<size_t>(place)]);
    }
    CompactCompressed(shared, max_bytes, num_bytes);
    if (*num_bytes > before) next_compacted = (i + 1) % tables.size();
  }
  for (const Tier place : places) {
    broken = Lost(CompactTables(edited[static_cast<size_t>(place)], place));
    if (!broken.ok()) return;
  }
}

size_t SequenceCache::Compact(size_t max_bytes) {
  Impl& c = *impl_;
  size_t num_bytes = 0;
  // Whoever appends next is told why.
  if (!c.CheckSound().ok()) return 0;
  c.Refresh();
  c.UnsealOwnPages();
  try {
    c.CompactAll(max_bytes, &num_bytes);
  } catch (const std::bad_alloc&) {
    c.torn = true;
    throw;
  }
  return num_bytes;
}

}  // namespace ebb
