// Rows move out of sparse pages into holes of others of their tier.
#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

bool HasPagesToSpare(const TokenTable& table, Tier tier) {
  return table.NumFreeSlots(tier) >= kRowsPerPage;
}

}  // namespace

// Rows that were moved to T1 must be written before its tables change again: a write that fails
// after that would break the sequence, and one that fails now does no harm.
std::span<const Tier> SequenceCache::Impl::TiersToCompact() {
  static constexpr std::array<Tier, 2> kBoth = {Tier::kT0, Tier::kT1};
  const auto spares = [](const auto& group_table) {
    return HasPagesToSpare(group_table->full, Tier::kT1);
  };
  if (stores.t1 == nullptr || !std::ranges::any_of(tables, spares))
    return std::span(kBoth).first(1);
  TierRows::EditSize size;
  for (const auto& group_table : tables) AddEdits(*group_table, 0, &size);
  const bool can = stores.t1->WaitForWrites().ok() && stores.t1->ReserveEdits(size).ok();
  return can ? kBoth : std::span(kBoth).first(1);
}

void SequenceCache::Impl::PlanCompaction(GroupTable* group_table, Tier tier, size_t max_bytes,
                                         size_t* num_bytes, std::vector<TableMove>* tables) {
  const size_t bytes_per_move = RowBytes() * NumStreams(*group_table);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  TableMove table = {.group_table = group_table};
  group_table->full.Compact(tier, left / bytes_per_move, &table.moves, &table.freed);
  if (table.freed.empty()) return;
  *num_bytes += table.moves.size() * bytes_per_move;
  tables->push_back(std::move(table));
}

Status SequenceCache::Impl::CompactTables(std::span<const TableMove> tables, Tier tier) {
  if (tables.empty()) return OkStatus();
  if (tier == Tier::kT1 && stage != nullptr) stage->Forget();
  std::vector<std::span<const SlotMove>> moves;  // [streams]
  std::vector<std::span<const PageRef>> pages;
  for (const TableMove& table : tables) {
    if (table.moves.empty()) continue;
    for (const int group : table.group_table->groups) {
      for (const Stream& stream : StreamsOf(group)) {
        moves.emplace_back(table.moves);
        pages.emplace_back(stream.refs);
      }
    }
  }
  TierRows* const rows = tier == Tier::kT0 ? stores.t0.get() : stores.t1.get();
  Status status = moves.empty() ? OkStatus() : rows->MoveRows(moves, pages);
  for (const TableMove& table : tables) {
    freed = table.freed;
    FreePages(table.group_table);
  }
  EndFreePages();
  return status;
}

void SequenceCache::Impl::CompactCompressed(GroupTable* group_table, size_t max_bytes,
                                            size_t* num_bytes) {
  const size_t stride = compressed.RowStride();
  const size_t bytes_per_move = stride * NumStreams(*group_table);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  freed.clear();
  if (group_table->compressed.num_rows() == 0) return;
  std::vector<SlotMove> moves;
  group_table->compressed.Compact(Tier::kT0, left / bytes_per_move, &moves, &freed);
  for (const int group : group_table->groups) {
    for (const Stream& stream : StreamsOf(group)) {
      for (const SlotMove& move : moves) {
        std::memcpy(CompressedAt(stream, move.to), CompressedAt(stream, move.from), stride);
      }
    }
  }
  FreeCompressed(group_table);
  *num_bytes += moves.size() * bytes_per_move;
}

void SequenceCache::Impl::CompactAll(size_t max_bytes, size_t* num_bytes) {
  const std::span<const Tier> compacted = TiersToCompact();
  std::array<std::vector<TableMove>, 2> moved_rows;  // by tier
  const size_t first = next_compacted;
  for (size_t i = first; i < first + tables.size() && *num_bytes < max_bytes; ++i) {
    GroupTable* group_table = tables[i % tables.size()].get();
    const size_t before = *num_bytes;
    for (const Tier tier : compacted) {
      PlanCompaction(group_table, tier, max_bytes, num_bytes,
                     &moved_rows[static_cast<size_t>(tier)]);
    }
    CompactCompressed(group_table, max_bytes, num_bytes);
    if (*num_bytes > before) next_compacted = (i + 1) % tables.size();
  }
  for (const Tier tier : compacted) {
    broken = Lost(CompactTables(moved_rows[static_cast<size_t>(tier)], tier));
    if (!broken.ok()) return;
  }
}

size_t SequenceCache::Compact(size_t max_bytes) {
  Impl& c = *impl_;
  size_t num_bytes = 0;
  // The next Append() returns the error.
  if (!c.CheckSound().ok()) return 0;
  c.Refresh();
  c.UnsealOwnPages();
  try {
    c.CompactAll(max_bytes, &num_bytes);
  } catch (const std::bad_alloc&) {
    c.inconsistent = true;
    throw;
  }
  return num_bytes;
}

}  // namespace ebb
