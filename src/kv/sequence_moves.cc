// Where rows lie: moves between tiers, and compaction. A table changes first, then every stream
// copies its rows as the table says, then pages go; only files can fail in between.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "src/attention/attention.h"
#include "src/io/page_file.h"
#include "src/kv/row_carrier.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// Ascending, each once.
std::vector<uint32_t> PagesOf(std::vector<uint32_t> slots) {
  std::vector<uint32_t>& pages = slots;
  for (uint32_t& page : pages) page /= kRowsPerPage;
  std::ranges::sort(pages);
  pages.erase(std::ranges::unique(pages).begin(), pages.end());
  return pages;
}

std::vector<uint32_t> Sources(std::span<const SlotMove> moves) {
  std::vector<uint32_t> slots;
  for (const SlotMove& move : moves) slots.push_back(move.from);
  return slots;
}

std::vector<uint32_t> Targets(std::span<const SlotMove> moves) {
  std::vector<uint32_t> slots;
  for (const SlotMove& move : moves) slots.push_back(move.to);
  return slots;
}

std::vector<uint32_t> Without(std::vector<uint32_t> pages, std::span<const TablePage> added) {
  std::erase_if(pages, [&](uint32_t page) {
    return std::ranges::any_of(added, [&](const TablePage& a) { return a.index == page; });
  });
  return pages;
}

std::vector<uint32_t> InT1(std::vector<uint32_t> pages, const TokenTable& table) {
  std::erase_if(pages, [&](uint32_t page) { return table.PlaceOf(page) != Tier::kT1; });
  return pages;
}

std::vector<uint32_t> Union(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

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

std::vector<uint32_t> SlotsAt(const TokenTable& table, std::span<const Position> positions) {
  std::vector<uint32_t> slots = RowsAt(table, positions);
  for (uint32_t& slot : slots) slot = table.slots()[slot];
  return slots;
}

size_t PagesFor(size_t num_rows) { return (num_rows + kRowsPerPage - 1) / kRowsPerPage; }

}  // namespace

uint32_t SequenceCache::Impl::TakeFilePage(int layer) {
  const uint32_t page = file_reserve[layer].back();
  file_reserve[layer].pop_back();
  return page;
}

Status SequenceCache::Impl::ReserveFilePages(const SharedTable& shared, size_t pages_per_stream) {
  if (pages_per_stream == 0) return OkStatus();
  for (const int group : shared.groups) {
    for (const Stream& stream : StreamsOf(group)) {
      const int layer = LayerOf(stream);
      if (Status status = stores.t1_file->Allocate(layer, pages_per_stream, &file_reserve[layer]);
          !status.ok()) {
        ReleaseFilePages();
        return status;
      }
    }
  }
  return OkStatus();
}

void SequenceCache::Impl::ReleaseFilePages() {
  for (auto& of_layer : file_reserve) {
    for (const uint32_t page : of_layer) stores.t1_file->Free(page);
    of_layer.clear();
  }
}

Status SequenceCache::Impl::Relocate(SharedTable* shared, std::span<const Position> positions,
                                     Tier place) {
  if (positions.empty()) return OkStatus();
  added.clear();
  freed.clear();
  moves.clear();
  shared->full.Relocate(RowsAt(shared->full, positions), place, &moves, &added, &freed);
  AllocatePages(shared);
  const bool sinks = place == Tier::kT1;
  const std::vector<uint32_t> in_t1 = sinks ? Targets(moves) : Sources(moves);
  const std::vector<uint32_t> in_t0 = sinks ? Sources(moves) : Targets(moves);
  T1Pages pages = {.reads = PagesOf(in_t1), .writes = {}};
  if (sinks) pages = {.reads = Without(pages.reads, added), .writes = pages.reads};
  // The table has let go of these pages, whether their rows arrived or not.
  const Status status =
      EditRows(shared, in_t1, pages, [&](const Stream& stream, std::span<const RowAddress> rows) {
        for (size_t i = 0; i < rows.size(); ++i) {
          const RowAddress other = RowAt(stream, in_t0[i]);
          sinks ? CopyRow(other, rows[i]) : CopyRow(rows[i], other);
        }
      });
  FreePages(shared);
  return status;
}

std::byte* SequenceCache::Impl::CompressedAt(const Stream& stream, uint32_t slot) const {
  return stream.compressed_pages[slot / kRowsPerPage] +
         slot % kRowsPerPage * stores.compressed.RowStride();
}

Status SequenceCache::Impl::Compress(SharedTable* shared, std::span<const Position> positions) {
  if (positions.empty()) return OkStatus();
  added.clear();
  shared->compressed.Insert(positions, Tier::kT0, &added);
  AllocateCompressed(shared);
  const std::vector<uint32_t> from = SlotsAt(shared->full, positions);
  const std::vector<uint32_t> to = SlotsAt(shared->compressed, positions);
  const AttentionKernel& kernel = *stores.kernel;
  const int head_dim = format.head_dim;
  std::vector<float> key(head_dim), value(head_dim);
  const T1Pages pages = {.reads = InT1(PagesOf(from), shared->full), .writes = {}};
  const Status status =
      EditRows(shared, from, pages, [&](const Stream& stream, std::span<const RowAddress> rows) {
        for (size_t i = 0; i < from.size(); ++i) {
          kernel.load_row(format.type, rows[i].key, key.data(), head_dim);
          kernel.load_row(format.type, rows[i].value, value.data(), head_dim);
          kernel.compress_row(stores.compressed, key.data(), value.data(),
                              CompressedAt(stream, to[i]));
        }
      });
  if (status.ok()) {
    RemoveFrom(shared, RowsAt(shared->full, positions), {});
  } else {
    RemoveFrom(shared, {}, RowsAt(shared->compressed, positions));
  }
  return status;
}

Status SequenceCache::Impl::Raise(SharedTable* shared, std::span<const Position> positions,
                                  Tier place) {
  if (positions.empty()) return OkStatus();
  const std::vector<uint32_t> from = SlotsAt(shared->compressed, positions);
  added.clear();
  shared->full.Insert(positions, place, &added);
  AllocatePages(shared);
  const std::vector<uint32_t> to = SlotsAt(shared->full, positions);
  T1Pages pages = {.reads = {}, .writes = InT1(PagesOf(to), shared->full)};
  pages.reads = Without(pages.writes, added);
  const AttentionKernel& kernel = *stores.kernel;
  std::vector<float> key(format.head_dim), value(format.head_dim);
  const Status status =
      EditRows(shared, to, pages, [&](const Stream& stream, std::span<const RowAddress> rows) {
        for (size_t i = 0; i < from.size(); ++i) {
          kernel.decompress_row(stores.compressed, CompressedAt(stream, from[i]), key.data(),
                                value.data());
          kernel.store_row(format.type, key.data(), rows[i].key, format.head_dim);
          kernel.store_row(format.type, value.data(), rows[i].value, format.head_dim);
        }
      });
  if (status.ok()) {
    RemoveFrom(shared, {}, RowsAt(shared->compressed, positions));
  } else {
    RemoveFrom(shared, RowsAt(shared->full, positions), {});
  }
  return status;
}

// Room for the rows that come, before any goes. What leaves T0 makes room for what comes there: new
// pages are only needed for what exceeds the present ones, since holes are filled first.
Status SequenceCache::Impl::ReserveMoves(const SharedTable& shared, const MovePlan& plan) {
  const size_t streams_of_table = NumStreams(shared);
  const size_t to_t1 = plan.sink.size() + plan.raise_t1.size();
  const bool has_t1 = HasFile() || stores.t1 != nullptr;
  if ((to_t1 > 0 && !has_t1) || (!plan.compress.empty() && stores.t2 == nullptr)) {
    return InvalidArgument(
        fmt::format("there is no tier {} to bring rows to", to_t1 > 0 && !has_t1 ? "T1" : "T2"));
  }
  if (!stores.device->one_memory()) {
    const size_t most =
        std::max({plan.sink.size(), plan.lift.size(), plan.compress.size(), plan.raise_t1.size()});
    EBB_RETURN_IF_ERROR(stores.carrier->Reserve(std::max(kT1EditBytes, most * RowBytes())));
  }
  const size_t t0_rows =
      shared.full.num_rows(Tier::kT0) - plan.num_leave_t0 + plan.lift.size() + plan.raise_t0.size();
  const size_t t0_pages = std::max(PagesFor(t0_rows), shared.full.num_pages(Tier::kT0));
  EBB_RETURN_IF_ERROR(
      stores.t0->Reserve((t0_pages - shared.full.num_pages(Tier::kT0)) * streams_of_table));
  if (stores.t2 != nullptr) {
    EBB_RETURN_IF_ERROR(
        stores.t2->Reserve(shared.compressed.PagesNeeded(plan.compress.size()) * streams_of_table));
  }
  const size_t t1_pages =
      shared.full.PagesNeeded(plan.sink.size(), Tier::kT1) + PagesFor(plan.raise_t1.size());
  if (stores.t1 != nullptr) return stores.t1->Reserve(t1_pages * streams_of_table);
  return HasFile() ? ReserveFilePages(shared, t1_pages) : OkStatus();
}

MovePlan SequenceCache::Impl::PlanMoves(const SharedTable& shared,
                                        std::span<const RowMove> wanted) {
  MovePlan plan;
  for (const RowMove& move : wanted) {
    Divide(shared, std::span(&move.row, 1));
    const Position position = shared.AllPositions()[move.row];
    if (!compressed_index.empty()) {
      if (move.to == Tier::kT0) plan.raise_t0.push_back(position);
      if (move.to == Tier::kT1) plan.raise_t1.push_back(position);
      continue;
    }
    const Tier from = shared.full.PlaceOf(shared.full.slots()[full_index[0]] / kRowsPerPage);
    if (move.to == from) continue;
    if (from == Tier::kT0) ++plan.num_leave_t0;
    if (move.to == Tier::kT0) plan.lift.push_back(position);
    if (move.to == Tier::kT1) plan.sink.push_back(position);
    if (move.to == Tier::kT2) plan.compress.push_back(position);
  }
  return plan;
}

Status SequenceCache::Impl::Lower(SharedTable* shared, const MovePlan& plan) {
  EBB_RETURN_IF_ERROR(Relocate(shared, plan.sink, Tier::kT1));
  return Compress(shared, plan.compress);
}

Status SequenceCache::Impl::Lift(SharedTable* shared, const MovePlan& plan) {
  EBB_RETURN_IF_ERROR(Relocate(shared, plan.lift, Tier::kT0));
  EBB_RETURN_IF_ERROR(Raise(shared, plan.raise_t0, Tier::kT0));
  return Raise(shared, plan.raise_t1, Tier::kT1);
}

void SequenceCache::Impl::EndPromises() {
  ReleaseFilePages();
  for (Arena* arena : {stores.t0, stores.t1, stores.t2}) {
    if (arena != nullptr) arena->Compact(0);
  }
}

Status SequenceCache::Move(int group, std::span<const RowMove> wanted) {
  Impl& c = *impl_;
  EBB_RETURN_IF_ERROR(c.broken);
  if (wanted.empty()) return OkStatus();
  const Device& device = *c.stores.device;
  const double start = device.Seconds();
  SharedTable* shared = c.Own(group);
  const MovePlan plan = c.PlanMoves(*shared, wanted);
  Status status = c.ReserveMoves(*shared, plan);
  double seconds_down = 0, seconds_up = 0;
  if (status.ok()) {
    if (c.stage != nullptr) c.stage->Forget();
    const double begin = device.Seconds();
    status = c.broken = c.Lower(shared, plan);
    seconds_down = device.Seconds() - begin;
    // Pages that went may have gone back to the system.
    const size_t num_rise = plan.lift.size() + plan.raise_t0.size();
    if (status.ok()) {
      status = c.stores.t0->Reserve(shared->full.PagesNeeded(num_rise) * c.NumStreams(*shared));
    }
    const double middle = device.Seconds();
    if (status.ok()) status = c.broken = c.Lift(shared, plan);
    seconds_up = device.Seconds() - middle;
  }
  c.EndPromises();
  EBB_RETURN_IF_ERROR(status);
  const size_t streams = c.streams_per_group;
  const size_t down = streams * (plan.sink.size() + plan.compress.size());
  const size_t up = streams * (plan.lift.size() + plan.raise_t0.size() + plan.raise_t1.size());
  c.moved.rows_down += static_cast<int64_t>(down);
  c.moved.rows_up += static_cast<int64_t>(up);
  c.moved.bytes_down += down * c.RowBytes();
  c.moved.bytes_up += up * c.RowBytes();
  c.moved.rows_compressed += static_cast<int64_t>(streams * plan.compress.size());
  c.moved.seconds += device.Seconds() - start;
  c.moved.seconds_down += seconds_down;
  c.moved.seconds_up += seconds_up;
  return OkStatus();
}

Status SequenceCache::Impl::CompactTable(SharedTable* shared, Tier place, size_t max_bytes,
                                         size_t* num_bytes) {
  const size_t bytes_per_move = RowBytes() * NumStreams(*shared);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  moves.clear();
  freed.clear();
  shared->full.Compact(place, left / bytes_per_move, &moves, &freed);
  if (freed.empty()) return OkStatus();
  T1Pages pages;
  if (place == Tier::kT1) {
    pages.writes = PagesOf(Targets(moves));
    pages.reads = Union(pages.writes, PagesOf(Sources(moves)));
  }
  if (place == Tier::kT1 && stage != nullptr) stage->Forget();
  const DeviceCall call(stores.device);
  const Status status =
      EditStreams(shared, pages, [&](const Stream& stream) { MoveRowsWithin(stream, place); });
  FreePages(shared);
  *num_bytes += moves.size() * bytes_per_move;
  return status;
}

void SequenceCache::Impl::CompactCompressed(SharedTable* shared, size_t max_bytes,
                                            size_t* num_bytes) {
  const size_t stride = stores.compressed.RowStride();
  const size_t bytes_per_move = stride * NumStreams(*shared);
  const size_t left = max_bytes - std::min(max_bytes, *num_bytes);
  moves.clear();
  freed.clear();
  if (shared->compressed.num_rows() == 0) return;
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

}  // namespace ebb
