// Saves and loads the pages of a cache; a page is written as its present rows.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "src/kv/sequence_cache_impl.h"
#include "src/kv/sequence_state.h"

namespace ebb {
namespace {

// Returns the present pages of a tier.
std::vector<uint32_t> PagesOf(const GroupTable& table, Tier tier) {
  std::vector<uint32_t> pages;
  table.ForEachPage(tier, [&](size_t page) { pages.push_back(static_cast<uint32_t>(page)); });
  return pages;
}

}  // namespace

std::string StatePage::ToString() const {
  return fmt::format("page {} of {} of layer {}, kv head {}", number, TierName(tier), layer,
                     kv_head);
}

// Pages visits all pages in the order of the file, and packs or unpacks their rows.
struct SequenceState::Pages {
  SequenceCache::Impl& c;
  const WriteStatePage* write = nullptr;
  const ReadStatePage* read = nullptr;
  std::vector<std::byte> packed = {};

  // Some names the pages of one tier in one stream.
  struct Some {
    const GroupTable& group_table;
    int stream = 0;
    StatePage first;
    std::vector<uint32_t> pages;
  };

  [[nodiscard]] size_t RowBytes(Tier tier) const { return c.layout.RowBytes(tier); }
  [[nodiscard]] static uint64_t UsedRows(const Some& some, uint32_t page) {
    return some.group_table.rows.UsedRows(page);
  }
  [[nodiscard]] StatePages Count() const {
    StatePages sum;
    for (const auto& table : c.tables.all()) {
      const size_t num_streams = c.layout.NumStreamsOf(table->groups);
      for (const Tier tier : TokenTable::kTiers) {
        sum.num_pages += table->rows.num_pages(tier) * num_streams;
        sum.num_bytes += table->rows.num_rows(tier) * RowBytes(tier) * num_streams;
      }
    }
    return sum;
  }

  Status Walk() {
    c.pages.FindAddresses();
    packed.resize(kRowsPerPage * std::max(RowBytes(Tier::kT0), RowBytes(Tier::kT2)));
    for (const auto& group_table : c.tables.all()) {
      for (const int group : group_table->groups) {
        const int first = c.layout.FirstStreamOf(group);
        for (int stream = first; stream < first + c.layout.NumStreamsOf(group); ++stream) {
          for (const Tier tier : TokenTable::kTiers) {
            EBB_RETURN_IF_ERROR(Visit({.group_table = *group_table,
                                       .stream = stream,
                                       .first = {.layer = c.layout.LayerOf(stream),
                                                 .kv_head = c.layout.KvHeadOf(stream),
                                                 .tier = tier},
                                       .pages = PagesOf(*group_table, tier)}));
          }
        }
      }
    }
    return OkStatus();
  }

  Status Visit(const Some& some) {
    if (some.pages.empty()) return OkStatus();
    std::vector<PageId> ids;
    for (const uint32_t page : some.pages) {
      ids.push_back(c.pages.IdOf(some.stream, page));
    }
    const auto access = read != nullptr ? TierPages::Access::kWrite : TierPages::Access::kRead;
    return c.pages.PagesOf(some.first.tier)->Visit(ids, access, [&](size_t i, std::byte* memory) {
      return Copy(some, i, memory);
    });
  }

  // Copies a page between memory and the file.
  Status Copy(const Some& some, size_t number, std::byte* page) {
    StatePage name = some.first;
    name.number = static_cast<uint32_t>(number);
    const uint64_t used = UsedRows(some, some.pages[number]);
    const std::span<std::byte> rows =
        std::span(packed).first(std::popcount(used) * RowBytes(name.tier));
    if (read != nullptr) EBB_RETURN_IF_ERROR((*read)(name, rows));
    CopyRows(name.tier, used, page, rows.data());
    return write != nullptr ? (*write)(name, rows) : OkStatus();
  }

  void CopyRows(Tier tier, uint64_t used, std::byte* page, std::byte* at) const {
    const auto copy = [&](std::byte* of_page, size_t num_bytes) {
      std::memcpy(read != nullptr ? of_page : at, read != nullptr ? at : of_page, num_bytes);
      at += num_bytes;
    };
    for (uint64_t left = used; left != 0; left &= left - 1) {
      const size_t row = std::countr_zero(left);
      if (tier == Tier::kT2) {
        copy(page + row * RowBytes(tier), RowBytes(tier));
      } else {
        const PageFormat& format = c.layout.format();
        const size_t stride = format.RowStride();
        copy(page + row * stride, stride);
        if (format.has_values) copy(page + format.ValueOffset() + row * stride, stride);
      }
    }
  }
};

StatePages SequenceState::CountPages(const SequenceCache& cache) {
  return Pages{.c = *cache.impl_}.Count();
}

Status SequenceState::SavePages(SequenceCache* cache, const WriteStatePage& write) {
  SequenceCache::Impl& c = *cache->impl_;
  // The next step must read again any pages that were read ahead.
  c.reader.Forget();
  if (c.stores.t1 != nullptr) EBB_RETURN_IF_ERROR(c.stores.t1->WaitForWrites());
  return Pages{.c = c, .write = &write}.Walk();
}

Status SequenceState::LoadPages(SequenceCache* cache, const ReadStatePage& read) {
  return Pages{.c = *cache->impl_, .read = &read}.Walk();
}

}  // namespace ebb
