#include "src/kv/row_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

#include "src/attention/trellis.h"
#include "src/base/clock.h"

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

// kCentreRows is the number of a stream's first rows whose mean key becomes its centre in T2.
constexpr size_t kCentreRows = 64;

// Returns the indices of the rows at these ascending positions.
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

}  // namespace

size_t RowMover::Plan::NewT1Pages() const {
  return table->rows.PagesNeeded(demoted.size(), Tier::kT1) + PagesFor(decompressed[1].size());
}

RowMover::RowMover(const CacheLayout& layout, const RowStores& stores,
                   const AttentionKernel* kernel, std::span<const float> key_metrics,
                   Device* device, GroupTables* tables, PageMap* pages, CacheHealth* health)
    : layout_(layout),
      stores_(stores),
      kernel_(kernel),
      key_metrics_(key_metrics),
      tables_(tables),
      pages_(pages),
      health_(health),
      editor_(layout, *pages, stores, device) {}

Status RowMover::WaitForWrites() const {
  return stores_.t1 == nullptr ? OkStatus() : stores_.t1->WaitForWrites();
}

Status RowMover::FinishWrites() {
  const Status written = WaitForWrites();
  const double waited = stores_.t1 == nullptr ? 0 : stores_.t1->TakeWaitSeconds();
  accounting_.seconds += waited;
  accounting_.seconds_down += waited;
  return written;
}

template <typename NumRowsOf>
size_t RowMover::NumRows(Plans plans, const NumRowsOf& num_rows_of) const {
  size_t num_rows = 0;
  for (const Plan& plan : plans) {
    num_rows += layout_.NumStreamsOf(plan.table->groups) * num_rows_of(plan);
  }
  return num_rows;
}

void RowMover::CountDown(size_t num_rows) {
  accounting_.rows_down += static_cast<int64_t>(num_rows);
  accounting_.bytes_down += num_rows * layout_.RowBytes();
}

void RowMover::CountUp(size_t num_rows) {
  accounting_.rows_up += static_cast<int64_t>(num_rows);
  accounting_.bytes_up += num_rows * layout_.RowBytes();
}

void RowMover::PlanRow(const RowMove& move, Plan* plan) {
  const TokenTable& rows = plan->table->rows;
  const Position position = rows.positions()[move.index];
  const Slot slot = rows.slots()[move.index];
  const Tier from = rows.TierOf(slot);
  if (move.to == from) return;
  if (from == Tier::kT2) {
    plan->decompressed[static_cast<size_t>(move.to)].push_back(position);
    return;
  }
  if (from == Tier::kT0) ++plan->num_leave_t0;
  if (from == Tier::kT0 && !rows.IsSealed(slot.page())) ++plan->num_leave_open_t0;
  if (move.to == Tier::kT0) plan->promoted.push_back(position);
  if (move.to == Tier::kT1) plan->demoted.push_back(position);
  if (move.to == Tier::kT2) plan->compressed.push_back(position);
}

std::vector<RowMover::Plan> RowMover::MakePlans(std::span<const GroupMoves> wanted) {
  std::vector<Plan> plans;
  for (const auto& [group, moves] : wanted) {
    if (moves.empty()) continue;
    plans.push_back({.table = tables_->Detach(group)});
    for (const RowMove& move : moves) PlanRow(move, &plans.back());
  }
  return plans;
}

// Reserves room for arriving rows before any row leaves. Rows that leave T0 free slots for those
// that arrive there, and free slots are filled first, so new pages are needed only for the excess.
Status RowMover::Reserve(Plans plans, ReservedPages* reserved) const {
  const bool has_t1 = stores_.t1 != nullptr;
  size_t t0_pages = 0;
  PageCounts pages;
  TierRows::EditSize edits;
  for (const Plan& plan : plans) {
    const TokenTable& rows = plan.table->rows;
    const bool goes_to_t1 = !plan.demoted.empty() || !plan.decompressed[1].empty();
    if ((goes_to_t1 && !has_t1) || (!plan.compressed.empty() && stores_.t2 == nullptr)) {
      return InvalidArgument(
          fmt::format("there is no tier {} to bring rows to", goes_to_t1 && !has_t1 ? "T1" : "T2"));
    }
    const size_t t0_rows = plan.NumComeToT0();
    const size_t t0_slots = rows.NumFreeSlots(Tier::kT0) + plan.num_leave_open_t0;
    t0_pages +=
        PagesFor(t0_rows - std::min(t0_rows, t0_slots)) * layout_.NumStreamsOf(plan.table->groups);
    pages.Add(layout_, *plan.table, Tier::kT1, plan.NewT1Pages());
    pages.Add(layout_, *plan.table, Tier::kT2, rows.PagesNeeded(plan.compressed.size(), Tier::kT2));
    AddEditSize(layout_, *plan.table, plan.NewT1Pages(), &edits);
  }
  EBB_RETURN_IF_ERROR(reserved->ReserveT0(t0_pages));
  if (has_t1) EBB_RETURN_IF_ERROR(stores_.t1->ReserveEdits(edits));
  return reserved->Reserve(pages);
}

std::vector<SlotMove> RowMover::MoveInTable(GroupTable* table, std::span<const Position> positions,
                                            Tier to, ReservedPages* reserved, FreedPages* freed) {
  std::vector<SlotMove> moves;
  freed->emplace_back(table, std::vector<TablePage>());
  added_.clear();
  table->rows.Relocate(RowsAt(table->rows, positions), to, &moves, &added_, &freed->back().second);
  table->ListFormats();
  reserved->Take(*table, added_);
  return moves;
}

// The tables no longer contain these pages, so they are released even if the rows did not arrive.
Status RowMover::Run(std::span<const TableEdit> edits, RecordWriter* records,
                     const FreedPages& freed) {
  Status status = editor_.Run(edits);
  if (status.ok() && records != nullptr) status = records->Finish();
  ReleasedPages released(pages_);
  for (const auto& [table, pages] : freed) released.Release(*table, pages);
  return health_->Record(status);
}

Status RowMover::Relocate(Plans plans, std::vector<Position> Plan::*rows, Tier to,
                          ReservedPages* reserved) {
  const bool demotes = to == Tier::kT1;
  EBB_RETURN_IF_ERROR(WaitForWrites());
  std::vector<TableEdit> edits;
  FreedPages freed;
  for (const Plan& plan : plans) {
    const std::vector<Position>& positions = plan.*rows;
    if (positions.empty()) continue;
    const std::vector<SlotMove> moves = MoveInTable(plan.table, positions, to, reserved, &freed);
    // Pages that lost their last row have left the table but are still to be read, so the edit
    // names the tiers itself instead of asking the table.
    using Access = TableEdit::Access;
    TableEdit edit(plan.table);
    edit.AddInT0(demotes ? Sources(moves) : Targets(moves),
                 demotes ? Access::kRead : Access::kWrite);
    edit.AddInT1(demotes ? Targets(moves) : Sources(moves),
                 demotes ? Access::kWrite : Access::kRead,
                 demotes ? std::span<const TablePage>(added_) : std::span<const TablePage>());
    edit.SetEdit([this, demotes](const Stream&, std::span<const RowAddress> addresses) {
      const size_t num_moves = addresses.size() / 2;
      const auto in_t0 = addresses.first(num_moves), in_t1 = addresses.last(num_moves);
      for (size_t i = 0; i < num_moves; ++i) {
        demotes ? CopyRow(in_t0[i], in_t1[i], layout_.format())
                : CopyRow(in_t1[i], in_t0[i], layout_.format());
      }
    });
    edits.push_back(std::move(edit));
  }
  return Run(edits, nullptr, freed);
}

Status RowMover::Demote(Plans plans, ReservedPages* reserved) {
  const size_t num_rows = NumRows(plans, [](const Plan& plan) { return plan.demoted.size(); });
  if (num_rows == 0) return OkStatus();
  EBB_RETURN_IF_ERROR(Relocate(plans, &Plan::demoted, Tier::kT1, reserved));
  CountDown(num_rows);
  return OkStatus();
}

Status RowMover::Promote(Plans plans, ReservedPages* reserved) {
  const size_t num_rows = NumRows(plans, [](const Plan& plan) { return plan.promoted.size(); });
  if (num_rows == 0) return OkStatus();
  EBB_RETURN_IF_ERROR(Relocate(plans, &Plan::promoted, Tier::kT0, reserved));
  CountUp(num_rows);
  return OkStatus();
}

// Sets the centre to the mean of these keys. A channel in which some key is not finite gets 0, so
// that it does not spoil later rows.
void RowMover::ChooseCentre(std::span<const RowAddress> rows, const Stream& stream) {
  const PageFormat& format = layout_.format();
  std::vector<float> key(format.head_dim), centre(format.head_dim);
  std::vector<double> sum(format.head_dim);
  for (const RowAddress& row : rows) {
    kernel_->load_row(format.type, row.key, key.data(), format.head_dim);
    for (size_t i = 0; i < key.size(); ++i) sum[i] += key[i];
  }
  for (size_t i = 0; i < key.size(); ++i) {
    const auto mean = static_cast<float>(sum[i] / static_cast<double>(rows.size()));
    centre[i] = std::isfinite(mean) ? mean : 0;
  }
  pages_->SetKeyCentre(pages_->IndexOf(stream), centre);
}

// Chooses centres from the first kCentreRows rows in order of position, in any tier, so that a
// centre does not depend on which rows move. It reads them before any row moves, and so waits for
// no write of this move to T1's file.
Status RowMover::ChooseCentres(Plans plans) {
  if (!layout_.compressed_format().IsCentred()) return OkStatus();
  std::vector<TableEdit> edits;
  for (const Plan& plan : plans) {
    const GroupTable& table = *plan.table;
    const std::span<const Stream> of_group = pages_->StreamsOf(table.groups.front());
    if (plan.compressed.empty() || !of_group.front().key_centre.empty()) continue;
    const std::span<const Slot> slots = table.FullSlots();
    TableEdit edit(&table);
    edit.AddToRead(slots.first(std::min(slots.size(), kCentreRows)));
    edit.SetEdit([this](const Stream& stream, std::span<const RowAddress> rows) {
      ChooseCentre(rows, stream);
    });
    edits.push_back(std::move(edit));
  }
  if (edits.empty()) return OkStatus();
  EBB_RETURN_IF_ERROR(WaitForWrites());
  const Status status = editor_.Run(edits);
  if (!status.ok()) {
    for (const TableEdit& edit : edits) pages_->ForgetKeyCentres(edit.table());
  }
  return status;
}

KeyFrame RowMover::FrameOf(const Stream& stream) const {
  if (key_metrics_.empty()) return {.centre = stream.CentreOfKeys()};
  const size_t floats = KeyMetricFloats(layout_.format().head_dim);
  return {.centre = stream.CentreOfKeys(),
          .metric = key_metrics_.data() + pages_->IndexOf(stream) * floats};
}

Status RowMover::Compress(Plans plans, ReservedPages* reserved) {
  const size_t num_rows = NumRows(plans, [](const Plan& plan) { return plan.compressed.size(); });
  if (num_rows == 0) return OkStatus();
  if (std::ranges::any_of(plans, &Plan::CompressesFromT1)) EBB_RETURN_IF_ERROR(WaitForWrites());
  const PageFormat& format = layout_.format();
  std::vector<float> key(format.head_dim), value(format.head_dim);
  RecordWriter records(stores_.t2.get());
  std::vector<TableEdit> edits;
  FreedPages freed;
  for (const Plan& plan : plans) {
    if (plan.compressed.empty()) continue;
    // The table names the tiers of the rows only until they leave it.
    TableEdit edit(plan.table);
    edit.AddToRead(SlotsAt(plan.table->rows, plan.compressed));
    const std::vector<SlotMove> moves =
        MoveInTable(plan.table, plan.compressed, Tier::kT2, reserved, &freed);
    edit.SetEdit([&, to = Targets(moves)](const Stream& stream, std::span<const RowAddress> rows) {
      for (size_t i = 0; i < rows.size(); ++i) {
        kernel_->load_row(format.type, rows[i].key, key.data(), format.head_dim);
        if (format.has_values) {
          kernel_->load_row(format.type, rows[i].value, value.data(), format.head_dim);
        }
        kernel_->compress_row(layout_.compressed_format(), FrameOf(stream), key.data(),
                              value.data(), records.Add(pages_->CompressedAt(stream, to[i])));
      }
    });
    edits.push_back(std::move(edit));
  }
  EBB_RETURN_IF_ERROR(Run(edits, &records, freed));
  CountDown(num_rows);
  accounting_.rows_compressed += static_cast<int64_t>(num_rows);
  return OkStatus();
}

Status RowMover::Decompress(Plans plans, Tier to, ReservedPages* reserved) {
  const auto rows_of = [to](const Plan& plan) -> const std::vector<Position>& {
    return plan.decompressed[static_cast<size_t>(to)];
  };
  const size_t num_rows = NumRows(plans, [&](const Plan& plan) { return rows_of(plan).size(); });
  if (num_rows == 0) return OkStatus();
  if (to == Tier::kT1) EBB_RETURN_IF_ERROR(WaitForWrites());
  const PageFormat& format = layout_.format();
  std::vector<float> key(format.head_dim), value(format.head_dim);
  std::vector<const std::byte*> addresses;
  std::vector<std::byte> records;
  Status read;
  std::vector<TableEdit> edits;
  FreedPages freed;
  for (const Plan& plan : plans) {
    const std::vector<Position>& positions = rows_of(plan);
    if (positions.empty()) continue;
    const std::vector<SlotMove> moves = MoveInTable(plan.table, positions, to, reserved, &freed);
    TableEdit edit(plan.table);
    if (to == Tier::kT0) {
      edit.AddInT0(Targets(moves), TableEdit::Access::kWrite);
    } else {
      edit.AddInT1(Targets(moves), TableEdit::Access::kWrite, added_);
    }
    edit.SetEdit(
        [&, from = Sources(moves)](const Stream& stream, std::span<const RowAddress> rows) {
          const size_t record_bytes = stores_.t2->record_bytes();
          addresses.clear();
          for (const Slot slot : from) addresses.push_back(pages_->CompressedAt(stream, slot));
          records.resize(rows.size() * record_bytes);
          if (read.ok()) read = stores_.t2->Read(addresses, records.data());
          for (size_t i = 0; i < rows.size() && read.ok(); ++i) {
            kernel_->decompress_row(layout_.compressed_format(), stream.CentreOfKeys(),
                                    records.data() + i * record_bytes, key.data(), value.data());
            kernel_->store_row(format.type, key.data(), rows[i].key, format.head_dim);
            if (!format.has_values) continue;
            kernel_->store_row(format.type, value.data(), rows[i].value, format.head_dim);
          }
        });
    edits.push_back(std::move(edit));
  }
  const Status edited = Run(edits, nullptr, freed);
  EBB_RETURN_IF_ERROR(read.ok() ? edited : health_->Record(read));
  CountUp(num_rows);
  return OkStatus();
}

Status RowMover::CarryOut(Plans plans, ReservedPages* reserved) {
  if (stores_.t1 != nullptr && stores_.t1->stage() != nullptr) stores_.t1->stage()->Forget();
  const double begin = SecondsNow();
  EBB_RETURN_IF_ERROR(ChooseCentres(plans));
  EBB_RETURN_IF_ERROR(Demote(plans, reserved));
  EBB_RETURN_IF_ERROR(Compress(plans, reserved));
  accounting_.seconds_down += SecondsNow() - begin;
  // The memory of freed pages may have returned to the system, so pages for the arriving rows are
  // reserved again.
  size_t t0_pages = 0;
  for (const Plan& plan : plans) {
    t0_pages +=
        plan.table->rows.PagesNeeded(plan.NumComeToT0()) * layout_.NumStreamsOf(plan.table->groups);
  }
  EBB_RETURN_IF_ERROR(reserved->ReserveT0(t0_pages));
  const double middle = SecondsNow();
  EBB_RETURN_IF_ERROR(Promote(plans, reserved));
  EBB_RETURN_IF_ERROR(Decompress(plans, Tier::kT0, reserved));
  EBB_RETURN_IF_ERROR(Decompress(plans, Tier::kT1, reserved));
  accounting_.seconds_up += SecondsNow() - middle;
  return OkStatus();
}

Status RowMover::Move(std::span<const GroupMoves> wanted) {
  const double start = SecondsNow();
  ReservedPages reserved(pages_);
  std::vector<Plan> plans;
  Status status;
  try {
    plans = MakePlans(wanted);
    if (plans.empty()) return OkStatus();
    status = Reserve(plans, &reserved);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("no memory to plan where rows go");
  }
  try {
    if (status.ok()) status = CarryOut(plans, &reserved);
  } catch (const std::bad_alloc&) {
    health_->RecordOutOfMemory();
    throw;
  }
  reserved.End();
  accounting_.seconds += SecondsNow() - start;
  // These seconds already include the waiting for T1, so T1's own count is discarded.
  if (stores_.t1 != nullptr) (void)stores_.t1->TakeWaitSeconds();
  return status;
}

}  // namespace ebb
