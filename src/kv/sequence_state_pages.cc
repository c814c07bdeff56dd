// The pages of a cache, each as the rows that are there.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "src/kv/sequence_cache_impl.h"
#include "src/kv/sequence_state.h"

namespace ebb {
namespace {

// The present pages of a tier.
std::vector<uint32_t> PagesOf(const GroupTable& group_table, Tier tier) {
  const TokenTable& table = tier == Tier::kT2 ? group_table.compressed : group_table.full;
  std::vector<uint32_t> pages;
  for (size_t page = 0; page < table.page_end(); ++page) {
    if (!table.HasPage(page)) continue;
    if (tier == Tier::kT2 || table.TierOf(page) == tier) {
      pages.push_back(static_cast<uint32_t>(page));
    }
  }
  return pages;
}

}  // namespace

std::string StatePage::ToString() const {
  return fmt::format("page {} of {} of layer {}, kv head {}", number, TierName(tier), layer,
                     kv_head);
}

// Walks over all pages in the order of the file, packing their rows or unpacking them.
struct SequenceState::Pages {
  SequenceCache::Impl& c;
  const WriteStatePage* write = nullptr;
  const ReadStatePage* read = nullptr;
  std::vector<std::byte> packed = {};

  // The pages of one tier of one stream.
  struct Some {
    const GroupTable& group_table;
    const Stream& stream;
    StatePage first;
    std::vector<uint32_t> pages;
  };

  [[nodiscard]] size_t RowBytes(Tier tier) const {
    return tier == Tier::kT2 ? c.compressed.RowStride() : c.RowBytes();
  }
  [[nodiscard]] static uint64_t UsedRows(const Some& some, uint32_t page) {
    const TokenTable& table =
        some.first.tier == Tier::kT2 ? some.group_table.compressed : some.group_table.full;
    return table.UsedRows(page);
  }
  [[nodiscard]] StatePages Count() const {
    StatePages sum;
    for (const auto& group_table : c.tables) {
      for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
        const TokenTable& table = tier == Tier::kT2 ? group_table->compressed : group_table->full;
        const size_t rows = tier == Tier::kT2 ? table.num_rows() : table.num_rows(tier);
        sum.num_pages += PagesOf(*group_table, tier).size() * c.NumStreams(*group_table);
        sum.num_bytes += rows * RowBytes(tier) * c.NumStreams(*group_table);
      }
    }
    return sum;
  }

  Status Walk() {
    c.Refresh();
    packed.resize(kRowsPerPage * std::max(RowBytes(Tier::kT0), RowBytes(Tier::kT2)));
    for (const auto& group_table : c.tables) {
      for (const int group : group_table->groups) {
        for (const Stream& stream : c.StreamsOf(group)) {
          const int index = c.IndexOf(stream);
          for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
            EBB_RETURN_IF_ERROR(Visit({.group_table = *group_table,
                                       .stream = stream,
                                       .first = {.layer = c.layout.LayerOf(index),
                                                 .kv_head = c.layout.KvHeadOf(index),
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
      ids.push_back(c.IdOf(some.stream, some.first.tier, page));
    }
    const auto access = read != nullptr ? TierPages::Access::kWrite : TierPages::Access::kRead;
    return c.PagesOf(some.first.tier)->Visit(ids, access, [&](size_t i, std::byte* memory) {
      return Copy(some, i, memory);
    });
  }

  // Between the page in memory and the file.
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
        const size_t stride = c.format.RowStride();
        copy(page + row * stride, stride);
        copy(page + c.format.ValueOffset() + row * stride, stride);
      }
    }
  }
};

StatePages SequenceState::CountPages(const SequenceCache& cache) {
  return Pages{.c = *cache.impl_}.Count();
}

Status SequenceState::SavePages(SequenceCache* cache, const WriteStatePage& write) {
  SequenceCache::Impl& c = *cache->impl_;
  // The next step reads again the pages that were read ahead of it.
  if (c.stage != nullptr) c.stage->Forget();
  EBB_RETURN_IF_ERROR(c.WaitForWrites());
  return Pages{.c = c, .write = &write}.Walk();
}

Status SequenceState::LoadPages(SequenceCache* cache, const ReadStatePage& read) {
  return Pages{.c = *cache->impl_, .read = &read}.Walk();
}

}  // namespace ebb
