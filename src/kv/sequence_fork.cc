// Pages that several caches hold: a fork shares those that are nearly full and copies the others.
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// The free slots of a page that is shared are lost to both until one of them lets it go.
constexpr int kLeastRowsToShare = kRowsPerPage * 3 / 4;
// Copies of a T1 in a file that are in memory at once.
constexpr size_t kCopyBytes = size_t{4} << 20;

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

uint32_t SequenceCache::Impl::NumHolders(const Stream& stream, Tier tier, size_t page) const {
  if (tier == Tier::kT2) return stores.t2->num_holders(stream.compressed_ids[page]);
  const PageId id = stream.refs[page].id();
  if (tier == Tier::kT0) return stores.t0->num_holders(id);
  return HasFile() ? stores.t1_file->num_holders(id) : stores.t1->num_holders(id);
}

size_t SequenceCache::Impl::PageBytes(Tier tier) const {
  return tier == Tier::kT2 ? stores.compressed.PageBytes() : format.PageBytes();
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
  EBB_RETURN_IF_ERROR(c.stores.t0->Reserve(copied.size()));
  const DeviceCall call(c.stores.device);
  for (const auto& [stream, page] : copied) {
    const PageId before = stream->refs[page].id();
    c.TakePage(stream, {static_cast<uint32_t>(page), Tier::kT0});
    std::memcpy(stream->pages[page], c.stores.t0->Address(before), c.format.PageBytes());
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
  std::array<size_t, 3> num_copies = {};
  for (const auto& shared : tables) {
    for (const int group : shared->groups) {
      table_of_group[group] = shared.get();
      for (Stream& stream : StreamsOf(group)) {
        stream.table = shared.get();
        GrowPages(&stream, 0);
      }
    }
    std::array<size_t, 3> of_table = {};
    for (const Tier tier : kTiersWithPages) {
      ForEachPage(*shared, tier, [&](size_t page) {
        if (!IsWorthSharing(TableOf(*shared, tier), page)) ++of_table[static_cast<size_t>(tier)];
      });
      num_copies[static_cast<size_t>(tier)] +=
          of_table[static_cast<size_t>(tier)] * NumStreams(*shared);
    }
    if (HasFile()) EBB_RETURN_IF_ERROR(ReserveFilePages(*shared, of_table[1]));
  }
  EBB_RETURN_IF_ERROR(stores.t0->Reserve(num_copies[0]));
  if (stores.t1 != nullptr) EBB_RETURN_IF_ERROR(stores.t1->Reserve(num_copies[1]));
  return stores.t2 != nullptr ? stores.t2->Reserve(num_copies[2]) : OkStatus();
}

void SequenceCache::Impl::SharePage(const Stream& other, Tier tier, size_t page, Stream* stream) {
  if (tier == Tier::kT2) {
    stream->compressed_ids[page] = other.compressed_ids[page];
    stream->compressed_pages[page] = other.compressed_pages[page];
    stores.t2->Share(other.compressed_ids[page]);
    return;
  }
  const PageId id = other.refs[page].id();
  if (tier == Tier::kT0) {
    stores.t0->Share(id);
  } else if (HasFile()) {
    stores.t1_file->Share(id);
  } else {
    stores.t1->Share(id);
  }
  stream->refs[page] = other.refs[page];
  SetAddress(stream, page);
}

void SequenceCache::Impl::CopyPage(const Stream& other, Tier tier, size_t page, Stream* stream) {
  if (tier == Tier::kT2) {
    TakeCompressedPage(stream, page);
    std::memcpy(stream->compressed_pages[page], other.compressed_pages[page], PageBytes(tier));
    return;
  }
  TakePage(stream, {static_cast<uint32_t>(page), tier});
  const bool on_host = tier == Tier::kT1 && IsRemote();
  if (tier == Tier::kT1 && HasFile()) return;
  const auto& from = on_host ? other.host_pages : other.pages;
  std::memcpy((on_host ? stream->host_pages : stream->pages)[page], from[page], PageBytes(tier));
}

Status SequenceCache::Impl::CopyFilePages(std::span<const PageCopy> copies) const {
  if (copies.empty()) return OkStatus();
  const size_t page_bytes = format.PageBytes();
  const size_t at_once = std::clamp<size_t>(kCopyBytes / page_bytes, 1, copies.size());
  EBB_ASSIGN_OR_RETURN(const IoMemory memory, IoMemory::Map(at_once * page_bytes));
  PageFile& file = *stores.t1_file;
  for (size_t first = 0; first < copies.size(); first += at_once) {
    std::vector<PageIo> reads, writes;
    for (const PageCopy& copy : copies.subspan(first, std::min(at_once, copies.size() - first))) {
      std::byte* const at = memory.data() + reads.size() * page_bytes;
      reads.push_back({.page = copy.from, .memory = at});
      writes.push_back({.page = copy.to, .memory = at});
    }
    EBB_ASSIGN_OR_RETURN(const auto reading, file.StartRead(reads));
    EBB_RETURN_IF_ERROR(file.Wait(reading));
    EBB_ASSIGN_OR_RETURN(const auto writing, file.StartWrite(writes));
    EBB_RETURN_IF_ERROR(file.Wait(writing));
  }
  return OkStatus();
}

Status SequenceCache::Impl::Fork(Impl* from) {
  EBB_RETURN_IF_ERROR(PrepareFork(from));
  std::vector<PageCopy> in_file;
  const DeviceCall call(stores.device);
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
            CopyPage(others[s], tier, page, &own[s]);
            if (tier != Tier::kT1 || !HasFile()) continue;
            in_file.push_back({others[s].refs[page].id(), own[s].refs[page].id()});
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
  return CopyFilePages(in_file);
}

Status SequenceCache::ForkFrom(SequenceCache* from) {
  Impl& c = *impl_;
  Impl& other = *from->impl_;
  assert(max_rows() == 0 && c.streams.size() == other.streams.size());
  EBB_RETURN_IF_ERROR(other.CheckSound());
  EBB_RETURN_IF_ERROR(other.SettleFile());
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
