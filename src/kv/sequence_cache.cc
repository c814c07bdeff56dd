// See sequence_cache_impl.h for the invariants.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "src/base/fetch_ahead.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {

GroupTable* SequenceCache::Impl::DetachTable(int group) {
  GroupTable* group_table = table_of_group[group];
  if (group_table->groups.size() == 1) return group_table;
  // First all memory, then changes.
  auto own = std::make_unique<GroupTable>(*group_table);
  tables.push_back(std::move(own));
  tables.back()->groups.assign(1, group);
  std::erase(group_table->groups, group);
  table_of_group[group] = tables.back().get();
  for (Stream& stream : StreamsOf(group)) stream.table = tables.back().get();
  return tables.back().get();
}

namespace {

template <typename T>
void GrowList(std::vector<T>* list, size_t size) {
  if (size > list->size()) list->resize(std::max(size, 2 * list->size()));
}

// That can lose their last row with these.
size_t MostPages(const TokenTable& table, std::span<const uint32_t> rows) {
  return std::min(rows.size(), table.num_pages());
}

}  // namespace

void SequenceCache::Impl::GrowPages(Stream* stream, size_t new_pages) {
  GrowList(&stream->refs, stream->table->full.page_end() + new_pages);
  GrowList(&stream->pages, stream->refs.size());
  if (T1HasAddresses()) GrowList(&stream->t1_pages, stream->refs.size());
  const size_t compressed = stream->table->compressed.page_end();
  GrowList(&stream->compressed_refs, compressed);
  GrowList(&stream->compressed_pages, stream->compressed_refs.size());
}

std::array<uint64_t, 3> SequenceCache::Impl::Generations() const {
  const auto of = [](const TierPages* pages) { return pages == nullptr ? 0 : pages->generation(); };
  return {of(stores.t0.get()), of(stores.t1.get()), of(stores.t2.get())};
}

void SequenceCache::Impl::SetAddress(Stream* stream, size_t page) const {
  const PageRef ref = stream->refs[page];
  if (ref.tier() == Tier::kT0 || stage == nullptr) {
    stream->pages[page] = PagesOf(ref.tier())->Address(ref.id());
  } else if (stores.t1->MayStay()) {
    stream->t1_pages[page] = stores.t1->Address(ref.id());
  }
}

void SequenceCache::Impl::FindPages() {
  for (Stream& stream : streams) {
    for (size_t page = 0; page < stream.refs.size(); ++page) {
      if (!stream.refs[page].empty()) SetAddress(&stream, page);
    }
    for (size_t page = 0; page < stream.compressed_refs.size(); ++page) {
      const PageRef ref = stream.compressed_refs[page];
      if (!ref.empty()) stream.compressed_pages[page] = stores.t2->Address(ref.id());
    }
  }
  generations = Generations();
}

void SequenceCache::Impl::TakePage(Stream* stream, const TablePage& page) {
  const PageId id = PagesOf(page.tier)->Take(LayerOf(*stream));
  stream->refs[page.index] = PageRef(page.tier, id);
  SetAddress(stream, page.index);
}

void SequenceCache::Impl::TakeCompressedPage(Stream* stream, size_t page) const {
  const PageId id = stores.t2->Take(LayerOf(*stream));
  stream->compressed_refs[page] = PageRef(Tier::kT2, id);
  stream->compressed_pages[page] = stores.t2->Address(id);
}

void SequenceCache::Impl::FreePage(Stream* stream, size_t page) {
  const PageRef ref = std::exchange(stream->refs[page], PageRef());
  stream->pages[page] = nullptr;
  if (T1HasAddresses()) stream->t1_pages[page] = nullptr;
  PagesOf(ref.tier())->Release(ref);
}

void SequenceCache::Impl::FreeCompressedPage(Stream* stream, size_t page) const {
  stores.t2->Release(std::exchange(stream->compressed_refs[page], PageRef()));
  stream->compressed_pages[page] = nullptr;
}

void SequenceCache::Impl::AddPages(const GroupTable& group_table, Tier tier,
                                   size_t pages_per_stream, PageCounts* counts) const {
  std::vector<size_t>& of_layers = (*counts)[static_cast<size_t>(tier)];
  of_layers.resize(layout.num_layers());
  if (pages_per_stream == 0) return;
  for (const int group : group_table.groups) {
    for (const Stream& stream : StreamsOf(group)) of_layers[LayerOf(stream)] += pages_per_stream;
  }
}

Status SequenceCache::Impl::ReservePages(const PageCounts& counts) {
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    TierPages* const pages = PagesOf(tier);
    if (pages == nullptr) continue;
    EBB_RETURN_IF_ERROR(pages->Reserve(counts[static_cast<size_t>(tier)]));
  }
  return OkStatus();
}

void SequenceCache::Impl::AllocatePages(GroupTable* group_table) {
  if (added.empty()) return;
  for (const int group : group_table->groups) {
    for (Stream& stream : StreamsOf(group)) {
      GrowPages(&stream, 0);
      for (const TablePage& page : added) TakePage(&stream, page);
    }
  }
}

void SequenceCache::Impl::FreePages(GroupTable* group_table) {
  if (freed.empty()) return;
  const auto in_t1 = [](const TablePage& page) { return page.tier == Tier::kT1; };
  if (stage != nullptr && std::ranges::any_of(freed, in_t1)) stage->Forget();
  for (const int group : group_table->groups) {
    for (Stream& stream : StreamsOf(group)) {
      for (const TablePage& page : freed) FreePage(&stream, page.index);
    }
  }
}

void SequenceCache::Impl::EndFreePages() {
  if (stores.t1 != nullptr) stores.t1->EndReleases();
}

void SequenceCache::Impl::AllocateCompressed(GroupTable* group_table) {
  for (const int group : group_table->groups) {
    for (Stream& stream : StreamsOf(group)) {
      GrowPages(&stream, 0);
      for (const TablePage& page : added) TakeCompressedPage(&stream, page.index);
    }
  }
}

void SequenceCache::Impl::FreeCompressed(GroupTable* group_table) {
  if (freed.empty()) return;
  for (const int group : group_table->groups) {
    for (Stream& stream : StreamsOf(group)) {
      for (const TablePage& page : freed) FreeCompressedPage(&stream, page.index);
    }
  }
}

void SequenceCache::Impl::ForgetCentres(const GroupTable& group_table) {
  for (const int group : group_table.groups) {
    for (Stream& stream : StreamsOf(group)) stream.key_centre.clear();
  }
}

SequenceCache::Impl::Impl(const ModelShape& shape, Granularity granularity_in)
    : layout(shape, granularity_in), granularity(granularity_in), streams(layout.num_streams()) {
  for (int group = 0; group < layout.num_groups(); ++group) {
    const bool has_one_layer = granularity != Granularity::kToken || shape.num_layers == 1;
    windows.push_back(has_one_layer ? shape.Window(layout.LayerOf(layout.FirstStreamOf(group)))
                                    : 0);
  }
  for (int attention = 0; attention < shape.NumAttentions(); ++attention) {
    const int layer = shape.LayerRead(attention);
    if (staged_layers.empty() || staged_layers.back() != layer) staged_layers.push_back(layer);
    stage_of_attention.push_back(static_cast<int>(staged_layers.size()) - 1);
  }
}

// Groups of several layers have no windows: their rows would have to go layer by layer.
SequenceCache::SequenceCache(const ModelShape& shape, const PageFormat& format,
                             Granularity granularity, const CacheStores& stores)
    : impl_(std::make_unique<Impl>(shape, granularity)) {
  Impl& c = *impl_;
  c.format = format;
  c.compressed = stores.compressed;
  c.kernel = stores.kernel;
  c.device = stores.device;
  c.stores = OpenRowStores(stores, format, shape.num_layers);
  if (c.stores.t1 != nullptr) c.stage = c.stores.t1->stage();
  const int num_groups = c.layout.num_groups();
  c.tables.push_back(std::make_unique<GroupTable>());
  GroupTable* group_table = c.tables.front().get();
  for (int group = 0; group < num_groups; ++group) group_table->groups.push_back(group);
  c.table_of_group.assign(num_groups, group_table);
  for (Stream& stream : c.streams) stream.table = group_table;
}

// Frees all pages of a stream without reading its table, which a failed change may have left
// inconsistent.
void SequenceCache::Impl::FreeAll(Stream* stream) {
  for (size_t page = 0; page < stream->refs.size(); ++page) {
    if (!stream->refs[page].empty()) FreePage(stream, page);
  }
  EndFreePages();
  for (size_t page = 0; page < stream->compressed_refs.size(); ++page) {
    if (!stream->compressed_refs[page].empty()) FreeCompressedPage(stream, page);
  }
}

SequenceCache::~SequenceCache() {
  Impl& c = *impl_;
  if (c.stage != nullptr) c.stage->Forget();
  for (Stream& stream : c.streams) c.FreeAll(&stream);
}

Status SequenceCache::SetT0Floor(uint64_t num_bytes) {
  return impl_->stores.t0->SetFloor(num_bytes);
}

Status SequenceCache::Impl::Lost(Status status) {
  if (status.ok()) return status;
  return {status.code(), status.message() + "; this sequence cannot go on"};
}

Status SequenceCache::Impl::CheckWhole() const {
  return inconsistent ? Lost(ResourceExhausted("memory ran out while rows moved")) : broken;
}

Status SequenceCache::CheckWhole() const { return impl_->CheckWhole(); }

Status SequenceCache::Impl::CheckSound() {
  EBB_RETURN_IF_ERROR(CheckWhole());
  return stores.t1 == nullptr ? OkStatus() : stores.t1->Check();
}

Status SequenceCache::Append(Position first, int num_tokens) {
  Impl& c = *impl_;
  EBB_RETURN_IF_ERROR(c.CheckSound());
  c.Refresh();
  if (num_tokens < 0 || first < 0 || first > std::numeric_limits<Position>::max() - num_tokens) {
    return InvalidArgument(
        fmt::format("cannot append {} tokens at position {}", num_tokens, first));
  }
  size_t num_pages = 0;
  for (const auto& group_table : c.tables) {
    const auto positions = group_table->AllPositions();
    if (!positions.empty() && first <= positions.back()) {
      return InvalidArgument(fmt::format("position {} does not follow position {}, which is cached",
                                         first, positions.back()));
    }
    num_pages += group_table->full.PagesNeeded(num_tokens) * c.NumStreams(*group_table);
  }
  EBB_RETURN_IF_ERROR(c.stores.t0->ReservePages(num_pages));
  try {
    for (const auto& group_table : c.tables) {
      group_table->full.ReserveRows(num_tokens);
      if (const size_t new_pages = group_table->full.PagesNeeded(num_tokens); new_pages > 0) {
        c.added.reserve(new_pages);
        for (const int group : group_table->groups) {
          for (Stream& stream : c.StreamsOf(group)) c.GrowPages(&stream, new_pages);
        }
      }
      if (group_table->compressed.num_rows() == 0) continue;
      GrowTo(&group_table->positions, group_table->positions.size() + num_tokens);
      GrowTo(&group_table->full_rows, group_table->full_rows.size() + num_tokens);
    }
  } catch (const std::bad_alloc&) {
    c.stores.t0->EndReservation();
    return ResourceExhausted(
        fmt::format("no memory for the token tables of {} more tokens", num_tokens));
  }
  for (const auto& group_table : c.tables) {
    c.added.clear();
    group_table->full.Append(first, num_tokens, &c.added);
    c.AllocatePages(group_table.get());
    if (group_table->compressed.num_rows() == 0) continue;
    for (int i = 0; i < num_tokens; ++i) {
      group_table->full_rows.push_back(static_cast<uint32_t>(group_table->positions.size()));
      group_table->positions.push_back(first + i);
    }
  }
  return OkStatus();
}

void SequenceCache::Impl::SplitByFormat(const GroupTable& group_table,
                                        std::span<const uint32_t> rows) {
  full_index.clear();
  compressed_index.clear();
  if (group_table.compressed.num_rows() == 0) {
    full_index.assign(rows.begin(), rows.end());
    return;
  }
  const auto& full = group_table.full_rows;
  auto at = full.begin();
  for (const uint32_t row : rows) {
    at = std::lower_bound(at, full.end(), row);
    const auto before = static_cast<uint32_t>(at - full.begin());
    if (at != full.end() && *at == row) {
      full_index.push_back(before);
    } else {
      compressed_index.push_back(row - before);
    }
  }
}

void SequenceCache::Impl::RemoveFrom(GroupTable* group_table, std::span<const uint32_t> full_rows,
                                     std::span<const uint32_t> compressed_rows) {
  freed.clear();
  // First all memory, then changes.
  if (stores.t1 != nullptr) {
    const size_t most_pages = std::min(full_rows.size(), group_table->full.num_pages(Tier::kT1));
    stores.t1->ReserveReleases(most_pages * NumStreams(*group_table));
  }
  freed.reserve(std::max(MostPages(group_table->full, full_rows),
                         MostPages(group_table->compressed, compressed_rows)));
  group_table->full.Remove(full_rows, &freed);
  FreePages(group_table);
  EndFreePages();
  freed.clear();
  group_table->compressed.Remove(compressed_rows, &freed);
  FreeCompressed(group_table);
  group_table->MergePositions();
}

void SequenceCache::Retain(int group, std::span<const uint32_t> kept) {
  const size_t num_rows = impl_->table_of_group[group]->num_rows();
  std::vector<uint32_t> removed;
  removed.reserve(num_rows - kept.size());
  auto next = kept.begin();
  for (uint32_t row = 0; row < num_rows; ++row) {
    if (next != kept.end() && *next == row) {
      ++next;
    } else {
      removed.push_back(row);
    }
  }
  assert(next == kept.end() && "indices must ascend strictly");
  Remove(group, removed);
}

void SequenceCache::Remove(int group, std::span<const uint32_t> removed) {
  Impl& c = *impl_;
  if (removed.empty()) return;
  GroupTable* group_table = c.DetachTable(group);
  c.SplitByFormat(*group_table, removed);
  c.RemoveFrom(group_table, c.full_index, c.compressed_index);
  c.rows_evicted += static_cast<int64_t>(removed.size()) * c.layout.NumStreamsOf(group);
}

bool SequenceCache::BeginRemoval(int group, std::span<const uint32_t> removed, Removal* removal) {
  GroupTable* group_table = impl_->table_of_group[group];
  if (group_table->groups.size() != 1 || group_table->compressed.num_rows() != 0 ||
      group_table->full.num_pages(Tier::kT1) != 0) {
    return false;
  }
  // First all memory, then changes.
  const size_t most_pages = MostPages(group_table->full, removed);
  removal->of_group.clear();
  removal->of_group.reserve(most_pages);
  const size_t num_pages = removal->pages.size();
  removal->pages.resize(num_pages + most_pages);
  group_table->full.Remove(removed, &removal->of_group);
  removal->pages.resize(num_pages);
  for (const TablePage& page : removal->of_group) removal->pages.emplace_back(group, page.index);
  removal->num_rows += removed.size() * impl_->layout.NumStreamsOf(group);
  return true;
}

void SequenceCache::EndRemoval(Removal* removal) {
  Impl& c = *impl_;
  for (const auto& [group, page] : removal->pages) {
    for (Stream& stream : c.StreamsOf(group)) c.FreePage(&stream, page);
  }
  c.rows_evicted += static_cast<int64_t>(removal->num_rows);
  removal->pages.clear();
  removal->num_rows = 0;
}

// The arrays of this group, and of the next one what says where its arrays are.
void SequenceCache::FetchForRemoval(int group) const {
  const auto& tables = impl_->table_of_group;
  tables[group]->full.FetchAhead();
  const size_t next = static_cast<size_t>(group) + 1;
  if (next < tables.size()) FetchAhead(std::span<const GroupTable>(tables[next], 1));
}

void SequenceCache::TruncateTo(Position end) {
  Impl& c = *impl_;
  if (c.inconsistent) return;
  // First all memory, then changes.
  size_t most_in_t1 = 0;
  for (const auto& group_table : c.tables) {
    const auto positions = group_table->AllPositions();
    const size_t num_gone = positions.end() - std::ranges::lower_bound(positions, end);
    c.freed.reserve(
        std::min(num_gone, group_table->full.num_pages() + group_table->compressed.num_pages()));
    most_in_t1 +=
        std::min(num_gone, group_table->full.num_pages(Tier::kT1)) * c.NumStreams(*group_table);
  }
  if (c.stores.t1 != nullptr) c.stores.t1->ReserveReleases(most_in_t1);
  for (const auto& group_table : c.tables) {
    const auto positions = group_table->AllPositions();
    if (positions.empty() || positions.back() < end) continue;
    c.freed.clear();
    group_table->full.TruncateTo(end, &c.freed);
    c.FreePages(group_table.get());
    c.freed.clear();
    group_table->compressed.TruncateTo(end, &c.freed);
    c.FreeCompressed(group_table.get());
    if (group_table->compressed.num_rows() == 0) c.ForgetCentres(*group_table);
    group_table->MergePositions();
  }
  c.EndFreePages();
}

void SequenceCache::SetLastVisible(int group, uint32_t index, Position last) {
  impl_->DetachTable(group)->full.SetLastVisible(index, last);
}

void SequenceCache::FindAddresses() { impl_->Refresh(); }

RowsView SequenceCache::View(int layer, int kv_head) const {
  impl_->Refresh();
  const size_t index = impl_->StreamIndex(layer, kv_head);
  const Stream& stream = impl_->streams[index];
  const TokenTable& full = stream.table->full;
  const bool lent = impl_->reads_lent;
  return {.pages = lent ? impl_->pages_with_lent[index].data() : stream.pages.data(),
          .slots = lent ? impl_->lent.slots() : full.slots(),
          .positions = full.positions(),
          .last_visible = full.last_visible(),
          .window = impl_->windows[impl_->layout.GroupOf(static_cast<int>(index))]};
}

size_t SequenceCache::NumPages(int layer, int kv_head) const {
  const size_t index = impl_->StreamIndex(layer, kv_head);
  if (impl_->reads_lent) return impl_->pages_with_lent[index].size();
  return impl_->streams[index].pages.size();
}

size_t SequenceCache::most_pages() const {
  size_t most = 0;
  for (size_t i = 0; i < impl_->streams.size(); ++i) {
    most = std::max(most, impl_->reads_lent ? impl_->pages_with_lent[i].size()
                                            : impl_->streams[i].pages.size());
  }
  return most;
}

CompressedRows SequenceCache::Compressed(int layer, int kv_head) const {
  impl_->Refresh();
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  return {.pages = stream.compressed_pages.data(),
          .slots = stream.table->compressed.slots(),
          .key_centre = stream.CentreOfKeys()};
}

std::span<const uint32_t> SequenceCache::FullRows(int layer, int kv_head) const {
  return impl_->streams[impl_->StreamIndex(layer, kv_head)].table->full_rows;
}

std::span<const uint32_t> SequenceCache::CompressedRowIndices(int layer, int kv_head) const {
  return impl_->streams[impl_->StreamIndex(layer, kv_head)].table->compressed_rows;
}

RowAddress SequenceCache::Row(int layer, int kv_head, uint32_t index) {
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  assert(index < stream.table->full.num_rows());
  impl_->Refresh();
  return impl_->RowAt(stream, stream.table->full.slots()[index]);
}

std::span<const Position> SequenceCache::positions(int group) const {
  return impl_->table_of_group[group]->AllPositions();
}

size_t SequenceCache::num_full_rows(int group) const {
  return impl_->table_of_group[group]->full.num_rows();
}

std::span<const Tier> SequenceCache::tiers(int group) {
  Impl& c = *impl_;
  const GroupTable& group_table = *c.table_of_group[group];
  c.tiers.assign(group_table.num_rows(), Tier::kT2);
  for (size_t i = 0; i < group_table.full.num_rows(); ++i) {
    const size_t row = group_table.full_rows.empty() ? i : group_table.full_rows[i];
    c.tiers[row] = group_table.full.TierOf(group_table.full.slots()[i].page());
  }
  return c.tiers;
}

bool SequenceCache::HasT1() const { return impl_->stores.t1 != nullptr; }

bool SequenceCache::HasTiers() const { return HasT1() || impl_->stores.t2 != nullptr; }

bool SequenceCache::HasCompressedRows() const {
  // Asked in every layer of a step: most caches have no T2 at all.
  return impl_->stores.t2 != nullptr &&
         std::ranges::any_of(impl_->tables, [](const auto& group_table) {
           return group_table->compressed.num_rows() > 0;
         });
}

int SequenceCache::GroupOf(int layer, int kv_head) const {
  return impl_->layout.GroupOf(impl_->layout.StreamOf(layer, kv_head));
}

std::vector<SequenceCache::StreamId> SequenceCache::StreamsOf(int group) const {
  const AttentionLayout& layout = impl_->layout;
  const int first = layout.FirstStreamOf(group);
  std::vector<StreamId> streams;
  for (int i = first; i < first + layout.NumStreamsOf(group); ++i) {
    streams.push_back({layout.LayerOf(i), layout.KvHeadOf(i)});
  }
  return streams;
}

int SequenceCache::num_groups() const { return static_cast<int>(impl_->table_of_group.size()); }
int SequenceCache::num_streams() const { return impl_->layout.num_streams(); }
int SequenceCache::NumStreamsOf(int group) const { return impl_->layout.NumStreamsOf(group); }
int SequenceCache::NumKvHeads(int layer) const { return impl_->layout.NumKvHeads(layer); }
int SequenceCache::WindowOf(int group) const { return impl_->windows[group]; }

Granularity SequenceCache::granularity() const { return impl_->granularity; }

const PageFormat& SequenceCache::format() const { return impl_->format; }

size_t SequenceCache::max_rows() const {
  size_t num_rows = 0;
  for (const auto& group_table : impl_->tables)
    num_rows = std::max(num_rows, group_table->num_rows());
  return num_rows;
}

}  // namespace ebb
