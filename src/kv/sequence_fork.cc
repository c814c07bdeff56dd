// Pages that several caches hold: a fork shares those that are nearly full and copies the others; a
// fork of the first rows alone shares those that are full.
#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <new>
#include <utility>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// The free slots of a page that is shared are lost to both until one of them lets it go.
constexpr int kLeastRowsToShare = kRowsPerPage * 3 / 4;
const TokenTable& TableOf(const GroupTable& group_table, Tier tier) {
  return tier == Tier::kT2 ? group_table.compressed : group_table.full;
}

// Calls visit(page) for the present pages of a tier.
template <typename Visit>
void ForEachPage(const GroupTable& group_table, Tier tier, const Visit& visit) {
  const TokenTable& table = TableOf(group_table, tier);
  for (size_t page = 0; page < table.page_end(); ++page) {
    if (table.HasPage(page) && (tier == Tier::kT2 || table.TierOf(page) == tier)) visit(page);
  }
}

constexpr std::array<Tier, 3> kTiersWithPages = {Tier::kT0, Tier::kT1, Tier::kT2};

}  // namespace

// `table` is the fork's, which has no more rows of the page than the other cache.
bool SequenceCache::Impl::IsWorthSharing(const TokenTable& table, size_t page, ForkedRows rows) {
  const int num_rows = std::popcount(table.UsedRows(page));
  if (rows == ForkedRows::kFirst) return num_rows == kRowsPerPage;
  return table.IsSealed(page) || num_rows >= kLeastRowsToShare;
}

PageId SequenceCache::Impl::IdOf(const Stream& stream, Tier tier, size_t page) const {
  return (tier == Tier::kT2 ? stream.compressed_refs : stream.refs)[page].id();
}

uint32_t SequenceCache::Impl::NumHolders(const Stream& stream, Tier tier, size_t page) const {
  return PagesOf(tier)->num_holders(IdOf(stream, tier, page));
}

size_t SequenceCache::Impl::PageBytes(Tier tier) const {
  return tier == Tier::kT2 ? compressed.PageBytes() : format.PageBytes();
}

void SequenceCache::Impl::AddSharedBytes(const GroupTable& group_table,
                                         CacheAccounting* sum) const {
  if (group_table.full.num_sealed() + group_table.compressed.num_sealed() == 0) return;
  for (const Tier tier : kTiersWithPages) {
    ForEachPage(group_table, tier, [&](size_t page) {
      if (!TableOf(group_table, tier).IsSealed(page)) return;
      for (const int group : group_table.groups) {
        for (const Stream& stream : StreamsOf(group)) {
          const uint32_t num_holders = NumHolders(stream, tier, page);
          if (num_holders == 1) continue;
          TierAccounting& of_tier = sum->tiers[static_cast<int>(tier)];
          of_tier.shared_page_bytes += PageBytes(tier);
          of_tier.fair_page_bytes -= PageBytes(tier) - PageBytes(tier) / num_holders;
        }
      }
    });
  }
}

void SequenceCache::Impl::UnsealOwnPages() {
  for (const auto& group_table : tables) {
    if (group_table->full.num_sealed() + group_table->compressed.num_sealed() == 0) continue;
    for (const Tier tier : kTiersWithPages) {
      TokenTable& table = tier == Tier::kT2 ? group_table->compressed : group_table->full;
      ForEachPage(*group_table, tier, [&](size_t page) {
        const auto is_own = [&](const Stream& s) { return NumHolders(s, tier, page) == 1; };
        const auto owns = [&](int group) { return std::ranges::all_of(StreamsOf(group), is_own); };
        if (table.IsSealed(page) && std::ranges::all_of(group_table->groups, owns))
          table.Unseal(page);
      });
    }
  }
}

Status SequenceCache::OwnPages() {
  Impl& c = *impl_;
  c.Refresh();
  std::vector<std::pair<Stream*, size_t>> copied;
  std::vector<std::pair<TokenTable*, size_t>> unsealed;
  try {
    for (const auto& group_table : c.tables) {
      if (group_table->full.num_sealed() == 0) continue;
      ForEachPage(*group_table, Tier::kT0, [&](size_t page) {
        if (!group_table->full.IsSealed(page)) return;
        unsealed.emplace_back(&group_table->full, page);
        for (const int group : group_table->groups) {
          for (Stream& stream : c.StreamsOf(group)) {
            if (c.NumHolders(stream, Tier::kT0, page) > 1) copied.emplace_back(&stream, page);
          }
        }
      });
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("no memory to copy pages that other sequences hold too");
  }
  EBB_RETURN_IF_ERROR(c.stores.t0->ReservePages(copied.size()));
  for (const auto& [stream, page] : copied) {
    const PageRef before = stream->refs[page];
    c.TakePage(stream, {static_cast<uint32_t>(page), Tier::kT0});
    const TierPages::PageCopy copy = {.from = before.id(), .to = stream->refs[page].id()};
    EBB_RETURN_IF_ERROR(c.stores.t0->Copy({&copy, 1}));
    c.stores.t0->Release(before);
  }
  for (const auto& [table, page] : unsealed) table->Unseal(page);
  return OkStatus();
}

// Tables, and memory for all that is to be copied.
Status SequenceCache::Impl::PrepareFork(Impl* from, ForkedRows rows, Position end) {
  std::vector<std::unique_ptr<GroupTable>> copies;
  for (const auto& group_table : from->tables) {
    group_table->full.ReserveSeals();
    group_table->compressed.ReserveSeals();
    copies.push_back(std::make_unique<GroupTable>(*group_table));
    if (rows == ForkedRows::kFirst) {
      freed.clear();  // pages that the fork never holds
      copies.back()->full.TruncateTo(end, &freed);
      copies.back()->compressed.TruncateTo(end, &freed);
      copies.back()->MergePositions();
    }
    copies.back()->full.ReserveSeals();
    copies.back()->compressed.ReserveSeals();
  }
  tables = std::move(copies);
  PageCounts num_copies;
  for (const auto& group_table : tables) {
    for (const int group : group_table->groups) {
      table_of_group[group] = group_table.get();
      for (Stream& stream : StreamsOf(group)) {
        stream.table = group_table.get();
        GrowPages(&stream, 0);
        if (rows == ForkedRows::kFirst && group_table->compressed.num_rows() == 0) continue;
        stream.key_centre = from->streams[IndexOf(stream)].key_centre;
      }
    }
    for (const Tier tier : kTiersWithPages) {
      size_t of_table = 0;
      ForEachPage(*group_table, tier, [&](size_t page) {
        if (!IsWorthSharing(TableOf(*group_table, tier), page, rows)) ++of_table;
      });
      AddPages(*group_table, tier, of_table, &num_copies);
    }
  }
  return ReservePages(num_copies);
}

void SequenceCache::Impl::SharePage(const Stream& other, Tier tier, size_t page, Stream* stream) {
  PagesOf(tier)->Share(IdOf(other, tier, page));
  if (tier == Tier::kT2) {
    stream->compressed_refs[page] = other.compressed_refs[page].OfAnother();
    stream->compressed_pages[page] = other.compressed_pages[page];
    return;
  }
  stream->refs[page] = other.refs[page].OfAnother();
  SetAddress(stream, page);
}

Status SequenceCache::Impl::Fork(Impl* from, ForkedRows rows, Position end) {
  EBB_RETURN_IF_ERROR(PrepareFork(from, rows, end));
  std::array<std::vector<TierPages::PageCopy>, 3> copies;  // by tier
  for (size_t i = 0; i < tables.size(); ++i) {
    GroupTable* const group_table = tables[i].get();
    for (const Tier tier : kTiersWithPages) {
      const auto table_of = [tier](GroupTable* s) -> TokenTable& {
        return tier == Tier::kT2 ? s->compressed : s->full;
      };
      ForEachPage(*group_table, tier, [&](size_t page) {
        const bool shares = IsWorthSharing(table_of(group_table), page, rows);
        for (const int group : group_table->groups) {
          const std::span<Stream> others = from->StreamsOf(group);
          const std::span<Stream> own = StreamsOf(group);
          for (size_t s = 0; s < own.size(); ++s) {
            if (shares) {
              SharePage(others[s], tier, page, &own[s]);
              continue;
            }
            if (tier == Tier::kT2) {
              TakeCompressedPage(&own[s], page);
            } else {
              TakePage(&own[s], {static_cast<uint32_t>(page), tier});
            }
            copies[static_cast<size_t>(tier)].push_back(
                {.from = IdOf(others[s], tier, page), .to = IdOf(own[s], tier, page)});
          }
        }
        if (!shares) return table_of(group_table).Unseal(page);
        table_of(group_table).Seal(page);
        table_of(from->tables[i].get()).Seal(page);
      });
    }
  }
  for (const Tier tier : kTiersWithPages) {
    const auto& of_tier = copies[static_cast<size_t>(tier)];
    if (!of_tier.empty()) EBB_RETURN_IF_ERROR(PagesOf(tier)->Copy(of_tier));
  }
  return OkStatus();
}

Status SequenceCache::Impl::ForkRows(Impl* from, ForkedRows rows, Position end) {
  assert(streams.size() == from->streams.size());
  EBB_RETURN_IF_ERROR(from->CheckSound());
  EBB_RETURN_IF_ERROR(from->WaitForWrites());
  from->Refresh();
  Refresh();
  Status status;
  try {
    status = Fork(from, rows, end);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("no memory to fork a sequence");
  }
  EndReservation();
  return status;
}

Status SequenceCache::ForkFrom(SequenceCache* from) {
  assert(max_rows() == 0);
  EBB_RETURN_IF_ERROR(impl_->ForkRows(from->impl_.get(), Impl::ForkedRows::kAll, /*end=*/0));
  impl_->rows_evicted = from->impl_->rows_evicted;
  impl_->moved = from->impl_->moved;
  return OkStatus();
}

Status SequenceCache::ForkFirstRows(SequenceCache* from, Position end) {
  assert(max_rows() == 0);
  return impl_->ForkRows(from->impl_.get(), Impl::ForkedRows::kFirst, end);
}

size_t SequenceCache::NumFirstRows(bool with_windows) const {
  size_t num_rows = std::numeric_limits<size_t>::max();
  const auto has_window = [this](int group) { return WindowOf(group) > 0; };
  for (const auto& group_table : impl_->tables) {
    if (!with_windows && std::ranges::all_of(group_table->groups, has_window)) continue;
    const std::span<const Position> positions = group_table->full.positions();
    // Positions ascend: one that is its own index has all the others before it.
    size_t low = 0, high = std::min(positions.size(), num_rows);
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      const bool all = positions[middle] == static_cast<Position>(middle);
      (all ? low : high) = all ? middle + 1 : middle;
    }
    num_rows = low;
  }
  return num_rows;
}

}  // namespace ebb
