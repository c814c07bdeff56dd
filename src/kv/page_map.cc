#include "src/kv/page_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace ebb {
namespace {

// Resizes the list, to at least twice its size.
template <typename T>
void GrowList(std::vector<T>* list, size_t size) {
  if (size > list->size()) list->resize(std::max(size, 2 * list->size()));
}

template <typename T>
size_t BytesOf(const std::vector<T>& array) {
  return array.capacity() * sizeof(T);
}

}  // namespace

void PageCounts::Add(const CacheLayout& layout, const GroupTable& table, Tier tier,
                     size_t pages_per_stream) {
  if (pages_per_stream == 0) return;
  std::vector<size_t>& of_layers = of_tiers_[static_cast<size_t>(tier)];
  of_layers.resize(layout.num_layers());
  for (const int group : table.groups) {
    const int first = layout.FirstStreamOf(group);
    for (int i = first; i < first + layout.NumStreamsOf(group); ++i) {
      of_layers[layout.LayerOf(i)] += pages_per_stream;
    }
  }
}

ReservedPages::ReservedPages(PageMap* map) : map_(map) {
  for (const Tier tier : TokenTable::kTiers) {
    if (TierPages* pages = map->PagesOf(tier)) tiers_[static_cast<size_t>(tier)].emplace(pages);
  }
}

Status ReservedPages::Reserve(const PageCounts& counts) {
  for (const Tier tier : TokenTable::kTiers) {
    auto& of_tier = tiers_[static_cast<size_t>(tier)];
    if (of_tier.has_value()) EBB_RETURN_IF_ERROR(of_tier->Reserve(counts.OfTier(tier)));
  }
  return OkStatus();
}

// Reserves `num_pages` pages of T0, which belong to no layer, so that one number suffices.
Status ReservedPages::ReserveT0(size_t num_pages) { return tiers_[0]->Reserve({&num_pages, 1}); }

void ReservedPages::Take(int stream, Tier tier, size_t page) {
  PageReservation& of_tier = *tiers_[static_cast<size_t>(tier)];
  Stream& to = map_->streams_[stream];
  to.refs[page] = PageRef(tier, of_tier.Take(map_->layout_.LayerOf(stream)));
  map_->SetAddress(&to, page);
}

void ReservedPages::Take(const GroupTable& table, std::span<const TablePage> added) {
  if (added.empty()) return;
  for (const int group : table.groups) {
    for (Stream& stream : map_->MutableStreamsOf(group)) {
      map_->Grow(table, 0, &stream);
      for (const TablePage& page : added) Take(map_->IndexOf(stream), page.tier, page.index);
    }
  }
}

void ReservedPages::End() {
  for (auto& of_tier : tiers_) {
    if (of_tier.has_value()) of_tier->End();
  }
}

ReleasedPages::ReleasedPages(PageMap* map, size_t num_in_t1) : map_(map) {
  for (const Tier tier : TokenTable::kTiers) {
    if (TierPages* pages = map->PagesOf(tier)) {
      tiers_[static_cast<size_t>(tier)].emplace(pages, tier == Tier::kT1 ? num_in_t1 : 0);
    }
  }
}

void ReleasedPages::Release(PageRef page) {
  tiers_[static_cast<size_t>(page.tier())]->Release(page);
}

void ReleasedPages::ReleaseOf(Stream* stream, size_t page) {
  const PageRef ref = std::exchange(stream->refs[page], PageRef());
  stream->pages[page] = nullptr;
  if (map_->T1HasAddresses()) stream->t1_pages[page] = nullptr;
  Release(ref);
}

void ReleasedPages::Release(const GroupTable& table, std::span<const TablePage> freed) {
  if (freed.empty()) return;
  const auto in_t1 = [](const TablePage& page) { return page.tier == Tier::kT1; };
  if (map_->stage_ != nullptr && std::ranges::any_of(freed, in_t1)) map_->stage_->Forget();
  for (const int group : table.groups) {
    for (Stream& stream : map_->MutableStreamsOf(group)) {
      for (const TablePage& page : freed) ReleaseOf(&stream, page.index);
    }
  }
}

void ReleasedPages::Release(int group, size_t page) {
  for (Stream& stream : map_->MutableStreamsOf(group)) ReleaseOf(&stream, page);
}

void ReleasedPages::ReleaseAll(int index) {
  Stream& stream = map_->streams_[index];
  for (size_t page = 0; page < stream.refs.size(); ++page) {
    if (!stream.refs[page].empty()) ReleaseOf(&stream, page);
  }
}

PageMap::PageMap(const CacheLayout& layout, const RowStores& stores)
    : layout_(layout),
      stores_(stores),
      stage_(stores.t1 == nullptr ? nullptr : stores.t1->stage()),
      streams_(layout.num_streams()) {}

// Frees pages without reading a table, because a failed change may have left tables inconsistent.
PageMap::~PageMap() {
  if (stage_ != nullptr) stage_->Forget();
  for (int stream = 0; stream < num_streams(); ++stream) ReleasedPages(this).ReleaseAll(stream);
}

TierPages* PageMap::PagesOf(Tier tier) const {
  if (tier == Tier::kT0) return stores_.t0.get();
  if (tier == Tier::kT1) return stores_.t1.get();
  return stores_.t2.get();
}

std::array<uint64_t, 3> PageMap::Generations() const {
  const auto of = [](const TierPages* pages) { return pages == nullptr ? 0 : pages->generation(); };
  return {of(stores_.t0.get()), of(stores_.t1.get()), of(stores_.t2.get())};
}

void PageMap::SetAddress(Stream* stream, size_t page) const {
  const PageRef ref = stream->refs[page];
  if (ref.tier() != Tier::kT1 || stage_ == nullptr) {
    stream->pages[page] = PagesOf(ref.tier())->Address(ref.id());
  } else if (stores_.t1->MayStay()) {
    stream->t1_pages[page] = stores_.t1->Address(ref.id());
  }
}

void PageMap::FindAllAddresses() {
  for (Stream& stream : streams_) {
    for (size_t page = 0; page < stream.refs.size(); ++page) {
      if (!stream.refs[page].empty()) SetAddress(&stream, page);
    }
  }
  generations_ = Generations();
}

void PageMap::Grow(const GroupTable& table, size_t new_pages, Stream* stream) const {
  GrowList(&stream->refs, table.rows.page_end() + new_pages);
  GrowList(&stream->pages, stream->refs.size());
  if (T1HasAddresses()) GrowList(&stream->t1_pages, stream->refs.size());
}

void PageMap::Grow(const GroupTable& table, size_t new_pages) {
  for (const int group : table.groups) {
    for (Stream& stream : MutableStreamsOf(group)) Grow(table, new_pages, &stream);
  }
}

void PageMap::RemoveRows(GroupTable* table, std::span<const uint32_t> rows) {
  const size_t most_in_t1 = std::min(rows.size(), table->rows.num_pages(Tier::kT1));
  ReleasedPages released(this, most_in_t1 * layout_.NumStreamsOf(table->groups));
  freed_.clear();
  freed_.reserve(std::min(rows.size(), table->rows.num_pages()));
  table->rows.Remove(rows, &freed_);
  released.Release(*table, freed_);
  table->ListFormats();
}

void PageMap::TruncateTo(Position end, std::span<const std::unique_ptr<GroupTable>> tables) {
  size_t most_in_t1 = 0;
  for (const auto& table : tables) {
    const auto positions = table->rows.positions();
    const size_t num_gone = positions.end() - std::ranges::lower_bound(positions, end);
    freed_.reserve(std::min(num_gone, table->rows.num_pages()));
    most_in_t1 +=
        std::min(num_gone, table->rows.num_pages(Tier::kT1)) * layout_.NumStreamsOf(table->groups);
  }
  ReleasedPages released(this, most_in_t1);
  for (const auto& table : tables) {
    const auto positions = table->rows.positions();
    if (positions.empty() || positions.back() < end) continue;
    freed_.clear();
    table->rows.TruncateTo(end, &freed_);
    released.Release(*table, freed_);
    if (!table->HasCompressed()) ForgetKeyCentres(*table);
    table->ListFormats();
  }
}

void PageMap::ForgetKeyCentres(const GroupTable& table) {
  for (const int group : table.groups) {
    for (Stream& stream : MutableStreamsOf(group)) stream.key_centre.clear();
  }
}

uint32_t PageMap::NumHolders(int stream, size_t page) const {
  const PageRef ref = streams_[stream].refs[page];
  return PagesOf(ref.tier())->num_holders(ref.id());
}

bool PageMap::IsShared(const GroupTable& table, size_t page) const {
  return std::ranges::any_of(table.groups, [&](int group) {
    const int first = layout_.FirstStreamOf(group);
    for (int i = first; i < first + layout_.NumStreamsOf(group); ++i) {
      if (NumHolders(i, page) > 1) return true;
    }
    return false;
  });
}

void PageMap::Share(const PageMap& from, int index, size_t page) {
  const PageRef ref = from.streams_[index].refs[page];
  PagesOf(ref.tier())->Share(ref.id());
  streams_[index].refs[page] = ref.OfAnother();
  SetAddress(&streams_[index], page);
}

size_t PageMap::BytesFor(size_t num_streams, const TableSize& of_group, size_t centre_floats) {
  // Lists that grow page by page double, so they may have room for up to twice the pages.
  const size_t of_lists = std::bit_ceil(of_group.full_pages + of_group.compressed_pages);
  return sizeof(PageMap) + num_streams * (sizeof(Stream) + centre_floats * sizeof(float) +
                                          of_lists * (sizeof(PageRef) + sizeof(std::byte*)));
}

size_t PageMap::table_bytes() const {
  size_t bytes = sizeof(PageMap) + BytesOf(streams_) + BytesOf(freed_);
  for (const Stream& stream : streams_) {
    bytes += BytesOf(stream.refs) + BytesOf(stream.pages) + BytesOf(stream.t1_pages) +
             BytesOf(stream.key_centre);
  }
  return bytes;
}

Status PageMap::CheckPages(const GroupTable& table, const Stream& stream) const {
  for (size_t page = 0; page < stream.refs.size(); ++page) {
    const PageRef ref = stream.refs[page];
    const bool present = table.rows.HasPage(page);
    if (ref.empty() == present || (present && ref.tier() != table.rows.TierOf(page))) {
      return Internal(fmt::format("a stream and its table disagree on page {}", page));
    }
    if (!present) {
      if (stream.pages[page] == nullptr) continue;
      return Internal(fmt::format("page {} has an address although it is absent", page));
    }
    const TierPages& pages = *PagesOf(ref.tier());
    const bool is_staged = ref.tier() == Tier::kT1 && stage_ != nullptr;
    const auto& addresses = is_staged && T1HasAddresses() ? stream.t1_pages : stream.pages;
    const bool has_address = HasAddresses() && (!is_staged || T1HasAddresses());
    if (has_address && addresses[page] != pages.Address(ref.id())) {
      return Internal(fmt::format("page {} lies elsewhere than its address", page));
    }
    if (pages.num_holders(ref.id()) > 1 && !table.rows.IsSealed(page)) {
      return Internal(fmt::format("page {} has several holders and is not sealed", page));
    }
  }
  return OkStatus();
}

Status PageMap::Validate(const GroupTable& table) const {
  for (const int group : table.groups) {
    for (const Stream& stream : StreamsOf(group)) {
      if (stream.refs.size() < table.rows.page_end() || stream.pages.size() != stream.refs.size()) {
        return Internal("a stream has too few pages");
      }
      EBB_RETURN_IF_ERROR(CheckPages(table, stream));
    }
  }
  return OkStatus();
}

}  // namespace ebb
