// Pages that several caches hold: a fork shares those that are nearly full and copies the others.
#include <algorithm>
#include <bit>
#include <cassert>
#include <new>
#include <utility>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// The free slots of a page that is shared are lost to both until one of them lets it go.
constexpr int kLeastRowsToShare = kRowsPerPage * 3 / 4;
const TokenTable& TableOf(const SharedTable& shared, Tier tier) {
  return tier == Tier::kT2 ? shared.compressed : shared.full;
}

// Calls visit(page) for the present pages of a tier.
template <typename Visit>
void ForEachPage(const SharedTable& shared, Tier tier, const Visit& visit) {
  const TokenTable& table = TableOf(shared, tier);
  for (size_t page = 0; page < table.page_end(); ++page) {
    if (table.HasPage(page) && (tier == Tier::kT2 || table.PlaceOf(page) == tier)) visit(page);
  }
}

constexpr std::array<Tier, 3> kTiersWithPages = {Tier::kT0, Tier::kT1, Tier::kT2};

bool IsWorthSharing(const TokenTable& table, size_t page) {
  return table.IsSealed(page) || std::popcount(table.UsedRows(page)) >= kLeastRowsToShare;
}

}  // namespace

PageId SequenceCache::Impl::IdOf(const Stream& stream, Tier tier, size_t page) const {
  return (tier == Tier::kT2 ? stream.compressed_refs : stream.refs)[page].id();
}

uint32_t SequenceCache::Impl::NumHolders(const Stream& stream, Tier tier, size_t page) const {
  return PagesOf(tier)->num_holders(IdOf(stream, tier, page));
}

size_t SequenceCache::Impl::PageBytes(Tier tier) const {
  return tier == Tier::kT2 ? compressed.PageBytes() : format.PageBytes();
}

void SequenceCache::Impl::AddSharedBytes(const SharedTable& shared, CacheAccounting* sum) const {
  if (shared.full.num_sealed() + shared.compressed.num_sealed() == 0) return;
  for (const Tier tier : kTiersWithPages) {
    ForEachPage(shared, tier, [&](size_t page) {
      if (!TableOf(shared, tier).IsSealed(page)) return;
      for (const int group : shared.groups) {
        for (const Stream& stream : StreamsOf(group)) {
          if (NumHolders(stream, tier, page) == 1) continue;
          sum->tiers[static_cast<int>(tier)].shared_page_bytes += PageBytes(tier);
        }
      }
    });
  }
}

void SequenceCache::Impl::UnsealOwnPages() {
  for (const auto& shared : tables) {
    if (shared->full.num_sealed() + shared->compressed.num_sealed() == 0) continue;
    for (const Tier tier : kTiersWithPages) {
      TokenTable& table = tier == Tier::kT2 ? shared->compressed : shared->full;
      ForEachPage(*shared, tier, [&](size_t page) {
        const auto is_own = [&](const Stream& s) { return NumHolders(s, tier, page) == 1; };
        const auto owns = [&](int group) { return std::ranges::all_of(StreamsOf(group), is_own); };
        if (table.IsSealed(page) && std::ranges::all_of(shared->groups, owns)) table.Unseal(page);
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
    for (const auto& shared : c.tables) {
      if (shared->full.num_sealed() == 0) continue;
      ForEachPage(*shared, Tier::kT0, [&](size_t page) {
        if (!shared->full.IsSealed(page)) return;
        unsealed.emplace_back(&shared->full, page);
        for (const int group : shared->groups) {
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
Status SequenceCache::Impl::PrepareFork(Impl* from) {
  std::vector<std::unique_ptr<SharedTable>> copies;
  for (const auto& shared : from->tables) {
    shared->full.ReserveSeals();
    shared->compressed.ReserveSeals();
    copies.push_back(std::make_unique<SharedTable>(*shared));
    copies.back()->full.ReserveSeals();
    copies.back()->compressed.ReserveSeals();
  }
  tables = std::move(copies);
  PageCounts num_copies;
  for (const auto& shared : tables) {
    for (const int group : shared->groups) {
      table_of_group[group] = shared.get();
      for (Stream& stream : StreamsOf(group)) {
        stream.table = shared.get();
        GrowPages(&stream, 0);
      }
    }
    for (const Tier tier : kTiersWithPages) {
      size_t of_table = 0;
      ForEachPage(*shared, tier, [&](size_t page) {
        if (!IsWorthSharing(TableOf(*shared, tier), page)) ++of_table;
      });
      AddPages(*shared, tier, of_table, &num_copies);
    }
  }
  return ReservePages(num_copies);
}

void SequenceCache::Impl::SharePage(const Stream& other, Tier tier, size_t page, Stream* stream) {
  PagesOf(tier)->Share(IdOf(other, tier, page));
  if (tier == Tier::kT2) {
    stream->compressed_refs[page] = other.compressed_refs[page].Borrowed();
    stream->compressed_pages[page] = other.compressed_pages[page];
    return;
  }
  stream->refs[page] = other.refs[page].Borrowed();
  SetAddress(stream, page);
}

Status SequenceCache::Impl::Fork(Impl* from) {
  EBB_RETURN_IF_ERROR(PrepareFork(from));
  std::array<std::vector<TierPages::PageCopy>, 3> copies;  // by tier
  for (size_t i = 0; i < tables.size(); ++i) {
    SharedTable* const shared = tables[i].get();
    for (const Tier tier : kTiersWithPages) {
      const auto table_of = [tier](SharedTable* s) -> TokenTable& {
        return tier == Tier::kT2 ? s->compressed : s->full;
      };
      ForEachPage(*shared, tier, [&](size_t page) {
        const bool shares = IsWorthSharing(table_of(shared), page);
        for (const int group : shared->groups) {
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
        if (!shares) return;
        table_of(shared).Seal(page);
        table_of(from->tables[i].get()).Seal(page);
      });
    }
  }
  rows_evicted = from->rows_evicted;
  moved = from->moved;
  for (const Tier tier : kTiersWithPages) {
    const auto& of_tier = copies[static_cast<size_t>(tier)];
    if (!of_tier.empty()) EBB_RETURN_IF_ERROR(PagesOf(tier)->Copy(of_tier));
  }
  return OkStatus();
}

Status SequenceCache::ForkFrom(SequenceCache* from) {
  Impl& c = *impl_;
  Impl& other = *from->impl_;
  assert(max_rows() == 0 && c.streams.size() == other.streams.size());
  EBB_RETURN_IF_ERROR(other.CheckSound());
  EBB_RETURN_IF_ERROR(other.SettleT1());
  other.Refresh();
  c.Refresh();
  Status status;
  try {
    status = c.Fork(&other);
  } catch (const std::bad_alloc&) {
    status = ResourceExhausted("no memory to fork a sequence");
  }
  c.EndPromises();
  return status;
}

}  // namespace ebb
