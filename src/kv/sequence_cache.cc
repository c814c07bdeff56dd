#include "src/kv/sequence_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <new>
#include <utility>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {

SequenceCache::SequenceCache(const ModelShape& shape, const PageFormat& format,
                             Granularity granularity, const CacheStores& stores)
    : impl_(std::make_unique<Impl>(shape, format, granularity, stores)) {}

SequenceCache::~SequenceCache() = default;

Status SequenceCache::Impl::CheckSound() const {
  EBB_RETURN_IF_ERROR(health.Check());
  return stores.t1 == nullptr ? OkStatus() : stores.t1->Check();
}

Status SequenceCache::CheckWhole() const { return impl_->health.Check(); }

Status SequenceCache::SetT0Floor(uint64_t num_bytes) {
  return impl_->stores.t0->SetFloor(num_bytes);
}

Status SequenceCache::Append(Position first, int num_tokens) {
  Impl& c = *impl_;
  EBB_RETURN_IF_ERROR(c.CheckSound());
  c.pages.FindAddresses();
  if (num_tokens < 0 || first < 0 || first > std::numeric_limits<Position>::max() - num_tokens) {
    return InvalidArgument(
        fmt::format("cannot append {} tokens at position {}", num_tokens, first));
  }
  size_t num_pages = 0;
  for (const auto& table : c.tables.all()) {
    const auto positions = table->rows.positions();
    if (!positions.empty() && first <= positions.back()) {
      return InvalidArgument(fmt::format("position {} does not follow position {}, which is cached",
                                         first, positions.back()));
    }
    num_pages += table->rows.PagesNeeded(num_tokens) * c.layout.NumStreamsOf(table->groups);
  }
  ReservedPages reserved(&c.pages);
  Status room = reserved.ReserveT0(num_pages);
  if (room.code() == StatusCode::kOutOfMemory) {
    // Cached pages of T1 occupy the same memory, so the cache frees them and tries again.
    c.reader.ReleaseCached();
    room = reserved.ReserveT0(num_pages);
  }
  EBB_RETURN_IF_ERROR(room);
  try {
    for (const auto& table : c.tables.all()) {
      table->ReserveRows(num_tokens);
      if (const size_t new_pages = table->rows.PagesNeeded(num_tokens); new_pages > 0) {
        c.added.reserve(new_pages);
        c.pages.Grow(*table, new_pages);
      }
    }
  } catch (const std::bad_alloc&) {
    reserved.End();
    return OutOfMemory(fmt::format("no memory for the token tables of {} more tokens", num_tokens));
  }
  for (const auto& table : c.tables.all()) {
    c.added.clear();
    table->Append(first, num_tokens, &c.added);
    reserved.Take(*table, c.added);
  }
  return OkStatus();
}

void SequenceCache::Remove(int group, std::span<const uint32_t> removed) {
  Impl& c = *impl_;
  if (removed.empty()) return;
  c.pages.RemoveRows(c.tables.Detach(group), removed);
  c.rows_evicted += static_cast<int64_t>(removed.size()) * c.layout.NumStreamsOf(group);
}

SequenceCache::Removal::Removal(SequenceCache* cache, Lists* lists) : cache_(cache), lists_(lists) {
  lists->pages.clear();
}

bool SequenceCache::Removal::Remove(int group, std::span<const uint32_t> removed) {
  Impl& c = *cache_->impl_;
  GroupTable& table = c.tables.Of(group);
  if (table.groups.size() != 1 || table.rows.num_pages() != table.rows.num_pages(Tier::kT0)) {
    return false;
  }
  // Allocates all memory before it changes anything.
  const size_t most_pages = std::min(removed.size(), table.rows.num_pages());
  lists_->of_group.clear();
  lists_->of_group.reserve(most_pages);
  const size_t num_pages = lists_->pages.size();
  lists_->pages.resize(num_pages + most_pages);
  table.rows.Remove(removed, &lists_->of_group);
  lists_->pages.resize(num_pages);
  for (const TablePage& page : lists_->of_group) lists_->pages.emplace_back(group, page.index);
  num_rows_ += removed.size() * c.layout.NumStreamsOf(group);
  return true;
}

SequenceCache::Removal::~Removal() {
  Impl& c = *cache_->impl_;
  ReleasedPages released(&c.pages);
  for (const auto& [group, page] : lists_->pages) released.Release(group, page);
  c.rows_evicted += static_cast<int64_t>(num_rows_);
}

Status SequenceCache::Move(std::span<const GroupMoves> moves) {
  EBB_RETURN_IF_ERROR(impl_->CheckSound());
  impl_->pages.FindAddresses();
  return impl_->mover.Move(moves);
}

void SequenceCache::TruncateTo(Position end) {
  if (impl_->health.is_consistent()) impl_->pages.TruncateTo(end, impl_->tables.all());
}

void SequenceCache::SetLastVisible(int group, uint32_t index, Position last) {
  impl_->tables.Detach(group)->SetLastVisible(index, last);
}

size_t SequenceCache::Compact(size_t max_bytes) {
  // Does nothing in an unsound cache; the next Append() returns the error.
  if (!impl_->CheckSound().ok()) return 0;
  impl_->pages.FindAddresses();
  return impl_->compactor.Compact(max_bytes);
}

size_t SequenceCache::Sort(size_t max_bytes) {
  impl_->pages.FindAddresses();
  return impl_->sorter.Sort(max_bytes);
}

Status SequenceCache::OwnPages() {
  impl_->pages.FindAddresses();
  return CopySharedT0Pages(impl_->layout, impl_->stores, {impl_->tables, impl_->pages});
}

Status SequenceCache::ForkFrom(SequenceCache* from, std::optional<Position> end) {
  Impl& source = *from->impl_;
  assert(impl_->tables.max_rows() == 0 && impl_->pages.num_streams() == source.pages.num_streams());
  EBB_RETURN_IF_ERROR(source.CheckSound());
  if (source.stores.t1 != nullptr) EBB_RETURN_IF_ERROR(source.stores.t1->WaitForWrites());
  source.pages.FindAddresses();
  impl_->pages.FindAddresses();
  EBB_RETURN_IF_ERROR(
      CacheFork(impl_->layout, {source.tables, source.pages}, {impl_->tables, impl_->pages}, end)
          .Run());
  if (end.has_value()) return OkStatus();
  impl_->rows_evicted = source.rows_evicted;
  impl_->mover.Continue(source.mover.accounting());
  return OkStatus();
}

void SequenceCache::FindAddresses() { impl_->pages.FindAddresses(); }

std::span<const Position> SequenceCache::positions(int group) const {
  return impl_->tables.Of(group).rows.positions();
}

std::span<const Tier> SequenceCache::tiers(int group) {
  Impl& c = *impl_;
  const TokenTable& rows = c.tables.Of(group).rows;
  c.tiers.clear();
  for (const Slot slot : rows.slots()) c.tiers.push_back(rows.TierOf(slot));
  return c.tiers;
}

bool SequenceCache::HasTier(Tier tier) const { return impl_->pages.PagesOf(tier) != nullptr; }

const CacheLayout& SequenceCache::layout() const { return impl_->layout; }

const RowViews& SequenceCache::views() const { return impl_->views; }

const GroupTables& SequenceCache::tables() const { return impl_->tables; }

const T1Reader& SequenceCache::t1_reader() const { return impl_->reader; }

Result<StagedStep> SequenceCache::StageStep(T1Reading reading) {
  impl_->pages.FindAddresses();
  StagedStep step(this);
  EBB_RETURN_IF_ERROR(impl_->reader.Begin(reading));
  return step;
}

// Ends the reads, and waits for the writes of earlier moves; most of them ended during the step.
Status SequenceCache::EndStaging() {
  const Status read = impl_->reader.End();
  if (!impl_->reader.IsStaged()) return read;
  const Status written = impl_->mover.FinishWrites();
  return read.ok() ? written : read;
}

StagedStep::~StagedStep() {
  if (cache_ != nullptr) (void)cache_->EndStaging();
}

Status StagedStep::End() { return std::exchange(cache_, nullptr)->EndStaging(); }

void StagedStep::StageLayer(int attention, int part) const {
  cache_->impl_->reader.StageLayer(attention, part);
}

void StagedStep::BeginSelection() const { cache_->impl_->reader.BeginSelection(); }

void StagedStep::ClearAddresses(int layer) const { cache_->impl_->reader.ClearAddresses(layer); }

void StagedStep::WantRows(int layer, int kv_head, std::span<const RowRange> ranges) const {
  cache_->impl_->reader.WantRows(layer, kv_head, ranges);
}

void StagedStep::ForeseeRows(int layer, int kv_head, std::span<const RowRange> ranges) const {
  cache_->impl_->reader.ForeseeRows(layer, kv_head, ranges);
}

void StagedStep::ReadWantedRows() const { cache_->impl_->reader.ReadWantedRows(); }

void StagedStep::ReleaseLayer(int attention) const {
  cache_->impl_->reader.ReleaseLayer(attention);
}

void StagedStep::EndLayer(int attention) const { cache_->impl_->reader.EndLayer(attention); }

void SequenceCache::SetCachedT1(const CachedT1& cached) { impl_->reader.set_cached(cached); }

void SequenceCache::ReleaseCachedT1() { impl_->reader.ReleaseCached(); }

void SequenceCache::BorrowFrom(SequenceCache* lender) {
  Impl& from = *lender->impl_;
  impl_->reader.BorrowFrom({.tables = &from.tables, .pages = &from.pages, .health = &from.health});
}

const MoveAccounting& SequenceCache::moves() const { return impl_->mover.accounting(); }

size_t SequenceCache::TableBytesFor(const CacheLayout& layout, const TableSize& of_group,
                                    bool are_alike) {
  const size_t num_groups = layout.num_groups(), num_tables = are_alike ? 1 : num_groups;
  const bool has_centres = of_group.compressed_rows > 0 && layout.compressed_format().IsCentred();
  return sizeof(Impl) + num_tables * GroupTable::BytesFor(of_group, num_groups / num_tables) +
         PageMap::BytesFor(layout.num_streams(), of_group,
                           has_centres ? layout.compressed_format().head_dim : 0);
}

CacheAccounting SequenceCache::accounting() const {
  const Impl& c = *impl_;
  CacheAccounting sum;
  sum.moves = c.mover.accounting();
  for (const Tier tier : TokenTable::kTiers) {
    TierAccounting& of_tier = sum.tiers[static_cast<int>(tier)];
    for (const auto& table : c.tables.all()) {
      const size_t num_rows = table->rows.num_rows(tier) * c.layout.NumStreamsOf(table->groups);
      of_tier.rows += static_cast<int64_t>(num_rows);
      of_tier.row_bytes += num_rows * c.layout.RowBytes(tier);
    }
    of_tier.page_bytes = of_tier.fair_page_bytes = page_bytes(tier);
  }
  AddSharedBytes(c.layout, c.pages, c.tables, &sum);
  sum.table_bytes =
      sizeof(Impl) + c.tables.table_bytes() + c.pages.table_bytes() + c.reader.table_bytes();
  if (c.stores.t1 != nullptr) sum.staging_bytes = c.stores.t1->buffer_bytes();
  sum.selection = c.reader.selection();
  sum.rows_evicted = c.rows_evicted;
  sum.num_tables = static_cast<int64_t>(c.tables.size());
  return sum;
}

size_t SequenceCache::page_bytes(Tier tier) const {
  size_t num_pages = 0;
  for (const auto& table : impl_->tables.all()) {
    num_pages += impl_->layout.NumStreamsOf(table->groups) * table->rows.num_pages(tier);
  }
  return num_pages * impl_->layout.PageBytes(tier);
}

size_t SequenceCache::RoomForTokens() const {
  const size_t new_pages = impl_->stores.t0->NumAvailable() / impl_->layout.num_streams();
  size_t free_slots = std::numeric_limits<size_t>::max();
  for (const auto& table : impl_->tables.all()) {
    free_slots = std::min(free_slots, table->rows.NumFreeSlots(Tier::kT0));
  }
  return free_slots + new_pages * kRowsPerPage;
}

Status SequenceCache::Validate() const {
  EBB_RETURN_IF_ERROR(impl_->tables.Validate());
  for (const auto& table : impl_->tables.all()) {
    EBB_RETURN_IF_ERROR(impl_->pages.Validate(*table));
  }
  return OkStatus();
}

}  // namespace ebb
