// Moves of rows between tiers. The tables change first, then every stream copies its rows as its
// table says, then pages go; only files and devices can fail in between.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "src/attention/attention.h"
#include "src/base/clock.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

std::vector<Slot> Sources(std::span<const SlotMove> moves) {
  std::vector<Slot> slots;
  for (const SlotMove& move : moves) slots.push_back(move.from);
  return slots;
}

std::vector<Slot> Targets(std::span<const SlotMove> moves) {
  std::vector<Slot> slots;
  for (const SlotMove& move : moves) slots.push_back(move.to);
  return slots;
}

// The first rows of a stream, whose keys' mean is its centre in T2.
constexpr size_t kCentreRows = 64;

// The indices of the rows at these ascending positions.
std::vector<uint32_t> RowsAt(const TokenTable& table, std::span<const Position> positions) {
  std::vector<uint32_t> rows;
  const auto all = table.positions();
  auto at = all.begin();
  for (const Position position : positions) {
    at = std::lower_bound(at, all.end(), position);
    rows.push_back(static_cast<uint32_t>(at - all.begin()));
  }
  return rows;
}

std::vector<Slot> SlotsAt(const TokenTable& table, std::span<const Position> positions) {
  std::vector<Slot> slots;
  for (const uint32_t row : RowsAt(table, positions)) slots.push_back(table.slots()[row]);
  return slots;
}

size_t PagesFor(size_t num_rows) { return (num_rows + kRowsPerPage - 1) / kRowsPerPage; }

// Pages of each stream.
size_t NewT1Pages(const GroupTable& group_table, const MovePlan& plan) {
  return group_table.full.PagesNeeded(plan.sink.size(), Tier::kT1) + PagesFor(plan.raise_t1.size());
}

}  // namespace

Status SequenceCache::Impl::WaitForWrites() {
  return stores.t1 == nullptr ? OkStatus() : stores.t1->WaitForWrites();
}

Status SequenceCache::Impl::Relocate(std::span<const TableMoves> all, PlannedRows rows, Tier tier) {
  const bool sinks = tier == Tier::kT1;
  if (NumRows(all, rows) == 0) return OkStatus();
  EBB_RETURN_IF_ERROR(WaitForWrites());
  std::vector<TableEdit> tables;
  for (const TableMoves& of_table : all) {
    const std::vector<Position>& positions = of_table.plan.*rows;
    if (positions.empty()) continue;
    TableEdit table = {.group_table = of_table.group_table};
    TokenTable& full = table.group_table->full;
    std::vector<SlotMove> moves;
    added.clear();
    full.Relocate(RowsAt(full, positions), tier, &moves, &added, &table.freed);
    AllocatePages(table.group_table);
    // A page that lost its last row is no page of the table any more, and is still to be read.
    using Access = TableEdit::Access;
    table.AddInT0(sinks ? Sources(moves) : Targets(moves), sinks ? Access::kRead : Access::kWrite);
    table.AddInT1(sinks ? Targets(moves) : Sources(moves), sinks ? Access::kWrite : Access::kRead,
                  sinks ? std::span<const TablePage>(added) : std::span<const TablePage>());
    table.edit = [this, sinks](const Stream&, std::span<const RowAddress> rows) {
      const size_t num_moves = rows.size() / 2;
      const auto in_t0 = rows.first(num_moves), in_t1 = rows.last(num_moves);
      for (size_t i = 0; i < num_moves; ++i) {
        sinks ? CopyRow(in_t0[i], in_t1[i], format) : CopyRow(in_t1[i], in_t0[i], format);
      }
    };
    tables.push_back(std::move(table));
  }
  broken = Lost(EditRows(tables));
  // The tables have let go of these pages, whether their rows arrived or not.
  FreePagesOf(tables);
  if (broken.ok()) Account(all, rows);
  return broken;
}

std::byte* SequenceCache::Impl::CompressedAt(const Stream& stream, Slot slot) const {
  return stream.compressed_pages[slot.page()] + slot.row() * compressed.RowStride();
}

// An element that is not finite in some row has no mean, and would spoil the rows to come.
void SequenceCache::Impl::ChooseCentre(std::span<const RowAddress> rows, Stream* stream) const {
  std::vector<float> key(format.head_dim);
  std::vector<double> sum(format.head_dim);
  for (const RowAddress& row : rows) {
    kernel->load_row(format.type, row.key, key.data(), format.head_dim);
    for (size_t i = 0; i < key.size(); ++i) sum[i] += key[i];
  }
  stream->key_centre.resize(key.size());
  for (size_t i = 0; i < key.size(); ++i) {
    const auto mean = static_cast<float>(sum[i] / static_cast<double>(rows.size()));
    stream->key_centre[i] = std::isfinite(mean) ? mean : 0;
  }
}

// The same rows in the same order whichever tier they lie in, and however few go to T2 at first.
// They are read before any row moves: what this move writes to T1's file is not waited for.
Status SequenceCache::Impl::ChooseCentres(std::span<const TableMoves> all) {
  if (!compressed.IsCentred()) return OkStatus();
  std::vector<TableEdit> tables;
  for (const auto& [group_table, plan] : all) {
    const std::span<const Stream> of_group = StreamsOf(group_table->groups.front());
    if (plan.compress.empty() || !of_group.front().key_centre.empty()) continue;
    const TokenTable& full = group_table->full;
    const size_t num_rows = std::min(full.num_rows(), kCentreRows);
    TableEdit table = {.group_table = group_table};
    table.Add(SlotsAt(full, full.positions().first(num_rows)), TableEdit::Access::kRead, {});
    table.edit = [this](const Stream& stream, std::span<const RowAddress> rows) {
      ChooseCentre(rows, &streams[IndexOf(stream)]);
    };
    tables.push_back(std::move(table));
  }
  if (tables.empty()) return OkStatus();
  EBB_RETURN_IF_ERROR(WaitForWrites());
  Status status = EditRows(tables);
  if (!status.ok()) {
    for (const TableEdit& table : tables) ForgetCentres(*table.group_table);
  }
  return status;
}

Status SequenceCache::Impl::Compress(std::span<const TableMoves> all) {
  const auto from_t1 = [](const TableMoves& of_table) {
    const MovePlan& plan = of_table.plan;
    return plan.sink.size() + plan.compress.size() > plan.num_leave_t0;
  };
  if (std::ranges::any_of(all, from_t1)) EBB_RETURN_IF_ERROR(WaitForWrites());
  const int head_dim = format.head_dim;
  std::vector<float> key(head_dim), value(head_dim);
  std::vector<TableEdit> tables;
  for (const auto& [group_table, plan] : all) {
    if (plan.compress.empty()) continue;
    added.clear();
    group_table->compressed.Insert(plan.compress, Tier::kT0, &added);
    AllocateCompressed(group_table);
    TableEdit table = {.group_table = group_table};
    table.Add(SlotsAt(group_table->full, plan.compress), TableEdit::Access::kRead, {});
    table.edit = [&, to = SlotsAt(group_table->compressed, plan.compress)](
                     const Stream& stream, std::span<const RowAddress> rows) {
      for (size_t i = 0; i < rows.size(); ++i) {
        kernel->load_row(format.type, rows[i].key, key.data(), head_dim);
        kernel->load_row(format.type, rows[i].value, value.data(), head_dim);
        kernel->compress_row(compressed, stream.CentreOfKeys(), key.data(), value.data(),
                             CompressedAt(stream, to[i]));
      }
    };
    tables.push_back(std::move(table));
  }
  broken = Lost(EditRows(tables));
  for (const auto& [group_table, plan] : all) {
    if (plan.compress.empty()) continue;
    if (broken.ok()) {
      RemoveFrom(group_table, RowsAt(group_table->full, plan.compress), {});
    } else {
      RemoveFrom(group_table, {}, RowsAt(group_table->compressed, plan.compress));
    }
  }
  if (broken.ok()) Account(all, &MovePlan::compress);
  return broken;
}

Status SequenceCache::Impl::Raise(std::span<const TableMoves> all, PlannedRows rows, Tier tier) {
  if (NumRows(all, rows) == 0) return OkStatus();
  if (tier == Tier::kT1) EBB_RETURN_IF_ERROR(WaitForWrites());
  std::vector<float> key(format.head_dim), value(format.head_dim);
  std::vector<TableEdit> tables;
  for (const auto& [group_table, plan] : all) {
    const std::vector<Position>& positions = plan.*rows;
    if (positions.empty()) continue;
    added.clear();
    group_table->full.Insert(positions, tier, &added);
    AllocatePages(group_table);
    TableEdit table = {.group_table = group_table};
    table.Add(SlotsAt(group_table->full, positions), TableEdit::Access::kWrite, added);
    table.edit = [&, from = SlotsAt(group_table->compressed, positions)](
                     const Stream& stream, std::span<const RowAddress> to) {
      for (size_t i = 0; i < to.size(); ++i) {
        kernel->decompress_row(compressed, stream.CentreOfKeys(), CompressedAt(stream, from[i]),
                               key.data(), value.data());
        kernel->store_row(format.type, key.data(), to[i].key, format.head_dim);
        kernel->store_row(format.type, value.data(), to[i].value, format.head_dim);
      }
    };
    tables.push_back(std::move(table));
  }
  broken = Lost(EditRows(tables));
  for (const auto& [group_table, plan] : all) {
    const std::vector<Position>& positions = plan.*rows;
    if (positions.empty()) continue;
    if (broken.ok()) {
      RemoveFrom(group_table, {}, RowsAt(group_table->compressed, positions));
    } else {
      RemoveFrom(group_table, RowsAt(group_table->full, positions), {});
    }
  }
  if (broken.ok()) Account(all, rows);
  return broken;
}

// Room for the rows that come, before any goes. What leaves T0 makes room for what comes there: new
// pages are only needed for what exceeds the present ones, since holes are filled first.
Status SequenceCache::Impl::ReserveMoves(std::span<const TableMoves> all) {
  const bool has_t1 = stores.t1 != nullptr;
  size_t t0_pages = 0;
  PageCounts pages;
  TierRows::EditSize edits;
  for (const auto& [group_table, plan] : all) {
    const TokenTable& full = group_table->full;
    const bool goes_to_t1 = !plan.sink.empty() || !plan.raise_t1.empty();
    if ((goes_to_t1 && !has_t1) || (!plan.compress.empty() && stores.t2 == nullptr)) {
      return InvalidArgument(
          fmt::format("there is no tier {} to bring rows to", goes_to_t1 && !has_t1 ? "T1" : "T2"));
    }
    const size_t t0_rows = plan.lift.size() + plan.raise_t0.size();
    const size_t t0_slots = full.NumFreeSlots(Tier::kT0) + plan.num_leave_open_t0;
    t0_pages += PagesFor(t0_rows - std::min(t0_rows, t0_slots)) * NumStreams(*group_table);
    AddPages(*group_table, Tier::kT1, NewT1Pages(*group_table, plan), &pages);
    AddPages(*group_table, Tier::kT2, group_table->compressed.PagesNeeded(plan.compress.size()),
             &pages);
    AddEdits(*group_table, NewT1Pages(*group_table, plan), &edits);
  }
  EBB_RETURN_IF_ERROR(stores.t0->ReservePages(t0_pages));
  if (has_t1) EBB_RETURN_IF_ERROR(stores.t1->ReserveEdits(edits));
  return ReservePages(pages);
}

void SequenceCache::Impl::AddEdits(const GroupTable& group_table, size_t new_pages,
                                   TierRows::EditSize* size) const {
  const size_t pages = group_table.full.num_pages(Tier::kT1) + new_pages;
  size->pages_of_stream = std::max(size->pages_of_stream, pages);
  size->pages += pages * NumStreams(group_table);
}

MovePlan SequenceCache::Impl::PlanMoves(const GroupTable& group_table,
                                        std::span<const RowMove> wanted) {
  MovePlan plan;
  for (const RowMove& move : wanted) {
    SplitByFormat(group_table, std::span(&move.row, 1));
    const Position position = group_table.AllPositions()[move.row];
    if (!compressed_index.empty()) {
      if (move.to == Tier::kT0) plan.raise_t0.push_back(position);
      if (move.to == Tier::kT1) plan.raise_t1.push_back(position);
      continue;
    }
    const uint32_t page = group_table.full.slots()[full_index[0]].page();
    const Tier from = group_table.full.TierOf(page);
    if (move.to == from) continue;
    if (from == Tier::kT0) ++plan.num_leave_t0;
    if (from == Tier::kT0 && !group_table.full.IsSealed(page)) ++plan.num_leave_open_t0;
    if (move.to == Tier::kT0) plan.lift.push_back(position);
    if (move.to == Tier::kT1) plan.sink.push_back(position);
    if (move.to == Tier::kT2) plan.compress.push_back(position);
  }
  return plan;
}

std::vector<TableMoves> SequenceCache::Impl::PlanAll(std::span<const GroupMoves> wanted) {
  std::vector<TableMoves> all;
  for (const auto& [group, rows] : wanted) {
    if (rows.empty()) continue;
    GroupTable* group_table = DetachTable(group);
    all.push_back({.group_table = group_table, .plan = PlanMoves(*group_table, rows)});
  }
  return all;
}

Status SequenceCache::Impl::Lower(std::span<const TableMoves> all) {
  EBB_RETURN_IF_ERROR(Relocate(all, &MovePlan::sink, Tier::kT1));
  return Compress(all);
}

Status SequenceCache::Impl::Lift(std::span<const TableMoves> all) {
  EBB_RETURN_IF_ERROR(Relocate(all, &MovePlan::lift, Tier::kT0));
  EBB_RETURN_IF_ERROR(Raise(all, &MovePlan::raise_t0, Tier::kT0));
  return Raise(all, &MovePlan::raise_t1, Tier::kT1);
}

void SequenceCache::Impl::EndReservation() {
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    if (PagesOf(tier) != nullptr) PagesOf(tier)->EndReservation();
  }
}

Status SequenceCache::Impl::MoveAll(std::span<const TableMoves> all) {
  if (stage != nullptr) stage->Forget();
  const double begin = SecondsNow();
  EBB_RETURN_IF_ERROR(ChooseCentres(all));
  EBB_RETURN_IF_ERROR(Lower(all));
  moved.seconds_down += SecondsNow() - begin;
  // Pages that went may have gone back to the system.
  size_t t0_pages = 0;
  for (const auto& [group_table, plan] : all) {
    const size_t num_rise = plan.lift.size() + plan.raise_t0.size();
    t0_pages += group_table->full.PagesNeeded(num_rise) * NumStreams(*group_table);
  }
  EBB_RETURN_IF_ERROR(stores.t0->ReservePages(t0_pages));
  const double middle = SecondsNow();
  EBB_RETURN_IF_ERROR(Lift(all));
  moved.seconds_up += SecondsNow() - middle;
  return OkStatus();
}

// In all streams.
size_t SequenceCache::Impl::NumRows(std::span<const TableMoves> all, PlannedRows rows) const {
  size_t num_rows = 0;
  for (const auto& [group_table, plan] : all)
    num_rows += NumStreams(*group_table) * (plan.*rows).size();
  return num_rows;
}

void SequenceCache::Impl::Account(std::span<const TableMoves> all, PlannedRows rows) {
  const size_t num_rows = NumRows(all, rows);
  const bool compresses = rows == &MovePlan::compress;
  const bool down = compresses || rows == &MovePlan::sink;
  (down ? moved.rows_down : moved.rows_up) += static_cast<int64_t>(num_rows);
  (down ? moved.bytes_down : moved.bytes_up) += num_rows * RowBytes();
  if (compresses) moved.rows_compressed += static_cast<int64_t>(num_rows);
}

Status SequenceCache::Move(std::span<const GroupMoves> wanted) {
  Impl& c = *impl_;
  EBB_RETURN_IF_ERROR(c.CheckSound());
  c.Refresh();
  const double start = SecondsNow();
  std::vector<TableMoves> all;
  Status status;
  try {
    all = c.PlanAll(wanted);
    if (all.empty()) return OkStatus();
    status = c.ReserveMoves(all);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("no memory to plan where rows go");
  }
  try {
    if (status.ok()) status = c.MoveAll(all);
  } catch (const std::bad_alloc&) {
    c.inconsistent = true;
    c.EndReservation();
    throw;
  }
  c.EndReservation();
  c.moved.seconds += SecondsNow() - start;
  // Waiting for T1 is among these seconds.
  if (c.stores.t1 != nullptr) (void)c.stores.t1->TakeWaitSeconds();
  return status;
}

Status SequenceCache::Move(int group, std::span<const RowMove> rows) {
  const GroupMoves moves = {.group = group, .rows = rows};
  return Move({&moves, 1});
}

}  // namespace ebb
