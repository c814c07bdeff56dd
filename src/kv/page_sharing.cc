#include "src/kv/page_sharing.h"

#include <bit>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace ebb {
namespace {

// kLeastRowsToShare is the least number of rows of a page that is shared; sparser pages are copied,
// because no cache can use the free slots of a shared page.
constexpr int kLeastRowsToShare = kRowsPerPage * 3 / 4;

// Calls visit(stream) with the number of each of the table's streams.
template <typename Visit>
void ForEachStream(const CacheLayout& layout, const GroupTable& table, const Visit& visit) {
  for (const int group : table.groups) {
    const int first = layout.FirstStreamOf(group);
    for (int i = first; i < first + layout.NumStreamsOf(group); ++i) visit(i);
  }
}

}  // namespace

bool CacheFork::IsWorthSharing(const TokenTable& table, size_t page) const {
  const int num_rows = std::popcount(table.UsedRows(page));
  if (end_.has_value()) return num_rows == kRowsPerPage;
  return table.IsSealed(page) || num_rows >= kLeastRowsToShare;
}

GroupTables::Tables CacheFork::CopyTables() const {
  GroupTables::Tables copies;
  for (const auto& table : from_.tables.all()) {
    table->rows.ReserveSeals();
    copies.push_back(std::make_unique<GroupTable>(*table));
    GroupTable& copy = *copies.back();
    if (end_.has_value()) {
      std::vector<TablePage> freed;  // pages that the fork never holds
      copy.rows.TruncateTo(*end_, &freed);
      copy.ListFormats();
    }
    copy.rows.ReserveSeals();
  }
  return copies;
}

Status CacheFork::Reserve(ReservedPages* reserved) const {
  PageCounts num_copies;
  for (const auto& table : to_.tables.all()) {
    to_.pages.Grow(*table, 0);
    if (!end_.has_value() || table->HasCompressed()) {
      ForEachStream(layout_, *table, [&](int stream) {
        to_.pages.SetKeyCentre(stream, from_.pages.stream(stream).key_centre);
      });
    }
    for (const Tier tier : TokenTable::kTiers) {
      size_t of_table = 0;
      table->ForEachPage(tier, [&](size_t page) {
        if (!IsWorthSharing(table->rows, page)) ++of_table;
      });
      num_copies.Add(layout_, *table, tier, of_table);
    }
  }
  return reserved->Reserve(num_copies);
}

Status CacheFork::ShareOrCopy(ReservedPages* reserved) {
  std::array<std::vector<TierPages::PageCopy>, 3> copies;  // by tier
  for (size_t i = 0; i < to_.tables.size(); ++i) {
    GroupTable& table = *to_.tables.all()[i];
    GroupTable& other = *from_.tables.all()[i];
    for (const Tier tier : TokenTable::kTiers) {
      table.ForEachPage(tier, [&](size_t page) {
        const bool shares = IsWorthSharing(table.rows, page);
        ForEachStream(layout_, table, [&](int stream) {
          if (shares) return to_.pages.Share(from_.pages, stream, page);
          reserved->Take(stream, tier, page);
          copies[static_cast<size_t>(tier)].push_back(
              {.from = from_.pages.IdOf(stream, page), .to = to_.pages.IdOf(stream, page)});
        });
        if (!shares) return table.rows.Unseal(page);
        table.rows.Seal(page);
        other.rows.Seal(page);
      });
    }
  }
  for (const Tier tier : TokenTable::kTiers) {
    const auto& of_tier = copies[static_cast<size_t>(tier)];
    if (!of_tier.empty()) EBB_RETURN_IF_ERROR(to_.pages.PagesOf(tier)->Copy(of_tier));
  }
  return OkStatus();
}

Status CacheFork::Run() {
  ReservedPages reserved(&to_.pages);
  Status status;
  try {
    to_.tables.Replace(CopyTables());
    status = Reserve(&reserved);
    if (status.ok()) status = ShareOrCopy(&reserved);
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("no memory to fork a sequence");
  }
  reserved.End();
  return status;
}

Status CopySharedT0Pages(const CacheLayout& layout, const RowStores& stores,
                         const CachePages& cache) {
  std::vector<std::pair<int, size_t>> copied;  // stream, page
  std::vector<std::pair<TokenTable*, size_t>> unsealed;
  try {
    for (const auto& table : cache.tables.all()) {
      if (table->rows.num_sealed() == 0) continue;
      table->ForEachPage(Tier::kT0, [&](size_t page) {
        if (!table->rows.IsSealed(page)) return;
        unsealed.emplace_back(&table->rows, page);
        ForEachStream(layout, *table, [&](int stream) {
          if (cache.pages.NumHolders(stream, page) > 1) {
            copied.emplace_back(stream, page);
          }
        });
      });
    }
  } catch (const std::bad_alloc&) {
    return OutOfMemory("no memory to copy pages that other sequences hold too");
  }
  ReservedPages reserved(&cache.pages);
  EBB_RETURN_IF_ERROR(reserved.ReserveT0(copied.size()));
  ReleasedPages released(&cache.pages);
  for (const auto& [stream, page] : copied) {
    const PageRef before = cache.pages.stream(stream).refs[page];
    reserved.Take(stream, Tier::kT0, page);
    const TierPages::PageCopy copy = {.from = before.id(), .to = cache.pages.IdOf(stream, page)};
    EBB_RETURN_IF_ERROR(stores.t0->Copy({&copy, 1}));
    released.Release(before);
  }
  for (const auto& [table, page] : unsealed) table->Unseal(page);
  return OkStatus();
}

void UnsealOwnPages(const PageMap& pages, const GroupTables& tables) {
  for (const auto& table : tables.all()) {
    if (table->rows.num_sealed() == 0) continue;
    for (size_t page = 0; page < table->rows.page_end(); ++page) {
      if (table->rows.IsSealed(page) && !pages.IsShared(*table, page)) table->rows.Unseal(page);
    }
  }
}

void AddSharedBytes(const CacheLayout& layout, const PageMap& pages, const GroupTables& tables,
                    CacheAccounting* sum) {
  for (const auto& table : tables.all()) {
    if (table->rows.num_sealed() == 0) continue;
    for (const Tier tier : TokenTable::kTiers) {
      table->ForEachPage(tier, [&](size_t page) {
        if (!table->rows.IsSealed(page)) return;
        ForEachStream(layout, *table, [&](int stream) {
          const uint32_t num_holders = pages.NumHolders(stream, page);
          if (num_holders == 1) return;
          const size_t page_bytes = layout.PageBytes(tier);
          TierAccounting& of_tier = sum->tiers[static_cast<int>(tier)];
          of_tier.shared_page_bytes += page_bytes;
          of_tier.fair_page_bytes -= page_bytes - page_bytes / num_holders;
        });
      });
    }
  }
}

}  // namespace ebb
