#include "src/kv/compactor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "src/kv/page_sharing.h"
#include "src/kv/row_editor.h"
#include "src/rows/t1_stage.h"

namespace ebb {
namespace {

bool HasPagesToSpare(const TokenTable& table, Tier tier) {
  return table.NumFreeSlots(tier) >= kRowsPerPage;
}

}  // namespace

// Returns T0, and T1 if it has pages to spare, its buffers have room, and all rows that were moved
// there have been written. A write that failed after T1's tables changed again would break the
// sequence; a write that fails before that does no harm.
std::span<const Tier> Compactor::TiersToCompact() const {
  static constexpr std::array<Tier, 2> kBoth = {Tier::kT0, Tier::kT1};
  const auto spares = [](const auto& table) { return HasPagesToSpare(table->rows, Tier::kT1); };
  if (stores_.t1 == nullptr || !std::ranges::any_of(tables_->all(), spares)) {
    return std::span(kBoth).first(1);
  }
  TierRows::EditSize size;
  for (const auto& table : tables_->all()) AddEditSize(layout_, *table, 0, &size);
  const bool can = stores_.t1->WaitForWrites().ok() && stores_.t1->ReserveEdits(size).ok();
  return can ? kBoth : std::span(kBoth).first(1);
}

void Compactor::Plan(GroupTable* table, Tier tier, size_t max_bytes, size_t* num_bytes,
                     std::vector<TableMoves>* plans) const {
  const size_t bytes_per_move = layout_.RowBytes() * layout_.NumStreamsOf(table->groups);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  TableMoves plan = {.table = table, .moves = {}, .freed = {}};
  table->rows.Compact(tier, left / bytes_per_move, &plan.moves, &plan.freed);
  if (plan.freed.empty()) return;
  *num_bytes += plan.moves.size() * bytes_per_move;
  plans->push_back(std::move(plan));
}

Status Compactor::CarryOut(std::span<const TableMoves> plans, Tier tier) {
  if (plans.empty()) return OkStatus();
  TierRows* rows = stores_.t0.get();
  if (tier == Tier::kT1) {
    rows = stores_.t1.get();
    if (rows->stage() != nullptr) rows->stage()->Forget();
  }
  std::vector<std::span<const SlotMove>> moves;  // [streams]
  std::vector<std::span<const PageRef>> refs;
  for (const TableMoves& plan : plans) {
    if (plan.moves.empty()) continue;
    for (const int group : plan.table->groups) {
      for (const Stream& stream : pages_->StreamsOf(group)) {
        moves.emplace_back(plan.moves);
        refs.emplace_back(stream.refs);
      }
    }
  }
  const Status status = moves.empty() ? OkStatus() : rows->MoveRows(moves, refs);
  ReleasedPages released(pages_);
  for (const TableMoves& plan : plans) released.Release(*plan.table, plan.freed);
  return status;
}

void Compactor::CompactCompressed(GroupTable* table, size_t max_bytes, size_t* num_bytes) {
  if (!table->HasCompressed()) return;
  const size_t stride = layout_.compressed_format().RowStride();
  const size_t bytes_per_move = stride * layout_.NumStreamsOf(table->groups);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  std::vector<SlotMove> moves;
  std::vector<TablePage> freed;
  table->rows.Compact(Tier::kT2, left / bytes_per_move, &moves, &freed);
  // Rows move into free slots, which no other row leaves, so the order of copies does not matter.
  const bool is_on_device = stores_.t2->IsOnDevice();
  std::vector<const std::byte*> from;
  std::vector<std::byte*> to;
  for (const int group : table->groups) {
    for (const Stream& stream : pages_->StreamsOf(group)) {
      for (const SlotMove& move : moves) {
        const std::byte* const source = pages_->CompressedAt(stream, move.from);
        std::byte* const target = pages_->CompressedAt(stream, move.to);
        if (is_on_device) {
          from.push_back(source);
          to.push_back(target);
        } else {
          std::memcpy(target, source, stride);
        }
      }
    }
  }
  if (!from.empty()) {
    std::vector<std::byte> records(from.size() * stride);
    Status status = stores_.t2->Read(from, records.data());
    if (status.ok()) status = stores_.t2->Write(to, records.data());
    (void)health_->Record(status);
  }
  ReleasedPages(pages_).Release(*table, freed);
  *num_bytes += moves.size() * bytes_per_move;
}

void Compactor::CompactTables(size_t max_bytes, size_t* num_bytes) {
  const std::span<const Tier> compacted = TiersToCompact();
  std::array<std::vector<TableMoves>, 2> plans;  // by tier
  const size_t num_tables = tables_->size();
  const size_t first = next_;
  for (size_t i = first; i < first + num_tables && *num_bytes < max_bytes; ++i) {
    GroupTable* table = tables_->all()[i % num_tables].get();
    const size_t before = *num_bytes;
    for (const Tier tier : compacted) {
      Plan(table, tier, max_bytes, num_bytes, &plans[static_cast<size_t>(tier)]);
    }
    CompactCompressed(table, max_bytes, num_bytes);
    table->ListFormats();
    if (*num_bytes > before) next_ = (i + 1) % num_tables;
  }
  for (const Tier tier : compacted) {
    if (!health_->Record(CarryOut(plans[static_cast<size_t>(tier)], tier)).ok()) return;
  }
}

size_t Compactor::Compact(size_t max_bytes) {
  size_t num_bytes = 0;
  UnsealOwnPages(*pages_, *tables_);
  try {
    CompactTables(max_bytes, &num_bytes);
  } catch (const std::bad_alloc&) {
    health_->RecordOutOfMemory();
    throw;
  }
  return num_bytes;
}

}  // namespace ebb
