// The tables: rows_evicted, the moves so far, and for each table its groups, the table of T0 and
// T1, the table of T2. docs/formats.md has the bytes.
#include "src/kv/sequence_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

// Of a T1 in a file, that are in memory at once.
constexpr size_t kBatchBytes = size_t{4} << 20;

void SaveTable(const TokenTable& table, StateWriter* to) {
  const TokenTableState state = table.State();
  std::vector<uint8_t> places;
  std::vector<uint64_t> used;
  for (const TokenTableState::Page& page : state.pages) {
    places.push_back(static_cast<uint8_t>(page.place));
    used.push_back(page.used);
  }
  to->Numbers<uint8_t>(places);
  to->Numbers<uint64_t>(used);
  to->Numbers<Position>(state.positions);
  to->Numbers<Position>(state.last_visible);
}

TokenTableState LoadTable(Position end, StateReader* from) {
  TokenTableState state;
  const auto places = from->Numbers<uint8_t>();
  const auto used = from->Numbers<uint64_t>();
  state.positions = from->Numbers<Position>();
  state.last_visible = from->Numbers<Position>();
  if (places.size() != used.size()) from->Fail("as many places as pages were expected");
  size_t num_rows = 0;
  for (size_t page = 0; page < used.size() && from->ok(); ++page) {
    if (places[page] > 1) from->Fail(fmt::format("a page in place {}", places[page]));
    if (used[page] == 0) from->Fail("a page without rows");
    num_rows += std::popcount(used[page]);
    state.pages.push_back({static_cast<Tier>(places[page]), used[page]});
  }
  if (num_rows != state.positions.size()) from->Fail("as many positions as rows were expected");
  for (const Position position : state.positions) {
    if (position >= end) from->Fail(fmt::format("position {} of {} tokens", position, end));
  }
  return state;
}

void SaveMoves(const MoveAccounting& moves, StateWriter* to) {
  to->Number<int64_t>(moves.rows_down);
  to->Number<int64_t>(moves.rows_up);
  to->Number<uint64_t>(moves.bytes_down);
  to->Number<uint64_t>(moves.bytes_up);
  to->Number<double>(moves.seconds);
}

MoveAccounting LoadMoves(StateReader* from) {
  MoveAccounting moves;
  moves.rows_down = from->Number<int64_t>();
  moves.rows_up = from->Number<int64_t>();
  moves.bytes_down = from->Number<uint64_t>();
  moves.bytes_up = from->Number<uint64_t>();
  moves.seconds = from->Number<double>();
  return moves;
}

// The present pages of a tier.
std::vector<uint32_t> PagesOf(const SharedTable& shared, Tier tier) {
  const TokenTable& table = tier == Tier::kT2 ? shared.compressed : shared.full;
  std::vector<uint32_t> pages;
  for (size_t page = 0; page < table.page_end(); ++page) {
    if (!table.HasPage(page)) continue;
    if (tier == Tier::kT2 || table.PlaceOf(page) == tier) {
      pages.push_back(static_cast<uint32_t>(page));
    }
  }
  return pages;
}

struct SavedTable {
  std::vector<int> groups;
  TokenTableState full, compressed;

  [[nodiscard]] size_t NumPages(Tier tier) const {
    if (tier == Tier::kT2) return compressed.pages.size();
    const auto there = [&](const TokenTableState::Page& page) { return page.place == tier; };
    return std::ranges::count_if(full.pages, there);
  }
};

std::vector<SavedTable> LoadSavedTables(Position end, size_t num_groups, StateReader* from) {
  const size_t num_tables = from->Length(sizeof(uint64_t));
  if (num_tables > num_groups) {
    from->Fail(fmt::format("{} tables of {} groups", num_tables, num_groups));
    return {};
  }
  std::vector<SavedTable> tables(num_tables);
  std::vector<bool> seen(num_groups);
  size_t num_seen = 0;
  for (SavedTable& saved : tables) {
    saved.groups = from->Numbers<int>();
    for (const int group : saved.groups) {
      if (group < 0 || static_cast<size_t>(group) >= num_groups || seen[group]) {
        from->Fail(fmt::format("group {} of {}, or twice", group, num_groups));
        return {};
      }
      seen[group] = true;
      ++num_seen;
    }
    if (saved.groups.empty() || !std::ranges::is_sorted(saved.groups)) {
      from->Fail("a table without groups, or not in order");
    }
    saved.full = LoadTable(end, from);
    saved.compressed = LoadTable(end, from);
    const auto elsewhere = [](const TokenTableState::Page& page) {
      return page.place != Tier::kT0;
    };
    if (std::ranges::any_of(saved.compressed.pages, elsewhere)) {
      from->Fail("a page of T2 in another place than 0");
    }
  }
  if (num_seen != num_groups) {
    from->Fail(fmt::format("{} groups, {} expected", num_seen, num_groups));
  }
  return tables;
}

}  // namespace

std::string StatePage::ToString() const {
  return fmt::format("page {} of {} of layer {}, kv head {}", number, TierName(tier), layer,
                     kv_head);
}

// Walks over all pages in the order of the file, packing their rows or putting them in place.
struct SequenceState::Pages {
  SequenceCache::Impl& c;
  const WriteStatePage* write = nullptr;
  const ReadStatePage* read = nullptr;
  std::vector<std::byte> packed = {};
  IoMemory memory = {};  // of a T1 in a file

  // The pages of one tier of one stream.
  struct Some {
    const SharedTable& shared;
    const Stream& stream;
    StatePage first;
    std::vector<uint32_t> pages;
  };

  [[nodiscard]] size_t RowBytes(Tier tier) const {
    return tier == Tier::kT2 ? c.stores.compressed.RowStride() : c.RowBytes();
  }
  [[nodiscard]] static uint64_t UsedRows(const Some& some, uint32_t page) {
    const TokenTable& table =
        some.first.tier == Tier::kT2 ? some.shared.compressed : some.shared.full;
    return table.UsedRows(page);
  }
  [[nodiscard]] StatePages Count() const {
    StatePages sum;
    for (const auto& shared : c.tables) {
      for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
        const TokenTable& table = tier == Tier::kT2 ? shared->compressed : shared->full;
        const size_t rows = tier == Tier::kT2 ? table.num_rows() : table.num_rows(tier);
        sum.num_pages += PagesOf(*shared, tier).size() * c.NumStreams(*shared);
        sum.num_bytes += rows * RowBytes(tier) * c.NumStreams(*shared);
      }
    }
    return sum;
  }

  Status Walk() {
    packed.resize(kRowsPerPage * std::max(RowBytes(Tier::kT0), RowBytes(Tier::kT2)));
    for (const auto& shared : c.tables) {
      for (const int group : shared->groups) {
        for (const Stream& stream : c.StreamsOf(group)) {
          const auto index = static_cast<int>(&stream - c.streams.data());
          for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
            EBB_RETURN_IF_ERROR(Visit({.shared = *shared,
                                       .stream = stream,
                                       .first = {.layer = index / c.shape.num_kv_heads,
                                                 .kv_head = index % c.shape.num_kv_heads,
                                                 .tier = tier},
                                       .pages = PagesOf(*shared, tier)}));
          }
        }
      }
    }
    return OkStatus();
  }

  Status Visit(const Some& some) {
    if (some.first.tier == Tier::kT1 && c.HasFile()) return VisitFile(some);
    for (size_t i = 0; i < some.pages.size(); ++i) {
      EBB_RETURN_IF_ERROR(Copy(some, i, ListOf(some)[some.pages[i]]));
    }
    return OkStatus();
  }

  [[nodiscard]] const std::vector<std::byte*>& ListOf(const Some& some) const {
    if (some.first.tier == Tier::kT2) return some.stream.compressed_pages;
    const bool beyond = some.first.tier == Tier::kT1 && c.IsRemote();
    return beyond ? some.stream.host_pages : some.stream.pages;
  }

  Status VisitFile(const Some& some) {
    const size_t page_bytes = c.format.PageBytes();
    const size_t at_once = std::max<size_t>(kBatchBytes / page_bytes, 1);
    if (!some.pages.empty() && memory.size() == 0) {
      EBB_ASSIGN_OR_RETURN(memory, IoMemory::Map(at_once * page_bytes));
    }
    for (size_t first = 0; first < some.pages.size(); first += at_once) {
      const size_t end = std::min(first + at_once, some.pages.size());
      std::vector<PageIo> requests;
      for (size_t i = first; i < end; ++i) {
        requests.push_back({.page = some.stream.file_pages[some.pages[i]],
                            .memory = memory.data() + (i - first) * page_bytes});
      }
      if (write != nullptr) EBB_RETURN_IF_ERROR(Transfer(&PageFile::StartRead, requests));
      for (size_t i = first; i < end; ++i) {
        EBB_RETURN_IF_ERROR(Copy(some, i, requests[i - first].memory));
      }
      if (read != nullptr) EBB_RETURN_IF_ERROR(Transfer(&PageFile::StartWrite, requests));
    }
    return OkStatus();
  }

  template <typename Start>
  Status Transfer(Start start, std::span<const PageIo> requests) const {
    EBB_ASSIGN_OR_RETURN(const auto ticket, (c.stores.t1_file->*start)(requests));
    return c.stores.t1_file->Wait(ticket);
  }

  // Between the page's place in memory and the file.
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
    const DeviceCall call(c.stores.device);
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

// Gives a cache without rows the tables of a saved one, with memory for all their pages.
struct SequenceState::Tables {
  SequenceCache::Impl& c;
  std::vector<SavedTable> saved;

  [[nodiscard]] StatePages Count() const {
    StatePages sum;
    for (const SavedTable& table : saved) {
      const size_t num_streams = table.groups.size() * c.streams_per_group;
      const size_t bytes = table.full.positions.size() * c.RowBytes() +
                           table.compressed.positions.size() * c.stores.compressed.RowStride();
      sum.num_pages += (table.full.pages.size() + table.compressed.pages.size()) * num_streams;
      sum.num_bytes += bytes * num_streams;
    }
    return sum;
  }

  Status CheckTiers() const {
    for (const SavedTable& table : saved) {
      const bool has_t1 = c.HasFile() || c.stores.t1 != nullptr;
      if (table.NumPages(Tier::kT1) > 0 && !has_t1) return Corrupt("rows lie in T1, which is none");
      if (table.NumPages(Tier::kT2) > 0 && c.stores.t2 == nullptr) {
        return Corrupt("rows lie in T2, which is none");
      }
    }
    return OkStatus();
  }

  Status Reserve() {
    std::array<size_t, 3> num_pages = {};
    for (const SavedTable& table : saved) {
      for (size_t tier = 0; tier < num_pages.size(); ++tier) {
        num_pages[tier] += table.NumPages(Tier(tier)) * table.groups.size() * c.streams_per_group;
      }
    }
    EBB_RETURN_IF_ERROR(c.stores.t0->Reserve(num_pages[0]));
    if (c.stores.t1 != nullptr) EBB_RETURN_IF_ERROR(c.stores.t1->Reserve(num_pages[1]));
    return c.stores.t2 != nullptr ? c.stores.t2->Reserve(num_pages[2]) : OkStatus();
  }

  // After which the tables are empty, and every group stands in its own.
  void Divide() {
    c.tables.clear();
    for (const SavedTable& table : saved) {
      c.tables.push_back(std::make_unique<SharedTable>());
      SharedTable* shared = c.tables.back().get();
      shared->groups = table.groups;
      for (const int group : table.groups) {
        c.table_of_group[group] = shared;
        for (Stream& stream : c.StreamsOf(group)) {
          stream.table = shared;
          stream.pages.resize(table.full.pages.size());
          if (c.HasFile()) stream.file_pages.resize(stream.pages.size());
          stream.compressed_pages.resize(table.compressed.pages.size());
        }
      }
    }
  }

  // The table takes its rows and every stream its pages, or neither.
  Status Fill(const SavedTable& table, SharedTable* shared) {
    if (c.HasFile()) EBB_RETURN_IF_ERROR(c.ReserveFilePages(*shared, table.NumPages(Tier::kT1)));
    c.added.clear();
    if (Status status = shared->full.Restore(table.full, &c.added); !status.ok()) {
      return Corrupt(status.message());
    }
    c.AllocatePages(shared);
    c.added.clear();
    if (Status status = shared->compressed.Restore(table.compressed, &c.added); !status.ok()) {
      return Corrupt(status.message());
    }
    c.AllocateCompressed(shared);
    shared->MergePositions();
    const auto positions = shared->AllPositions();
    if (std::ranges::adjacent_find(positions, std::greater_equal()) != positions.end()) {
      return Corrupt("a position in T2 and above it");
    }
    return OkStatus();
  }

  Status Load() {
    Status status = Reserve();
    if (status.ok()) Divide();
    for (size_t i = 0; i < saved.size() && status.ok(); ++i) {
      status = Fill(saved[i], c.tables[i].get());
    }
    c.EndPromises();
    return status;
  }
};

Result<StatePages> SequenceState::SaveTables(const SequenceCache& cache, StateWriter* tables) {
  SequenceCache::Impl& c = *cache.impl_;
  EBB_RETURN_IF_ERROR(c.broken);
  tables->Number<int64_t>(c.rows_evicted);
  SaveMoves(c.moved, tables);
  tables->Number<uint64_t>(c.tables.size());
  for (const auto& shared : c.tables) {
    tables->Numbers<int>(shared->groups);
    SaveTable(shared->full, tables);
    SaveTable(shared->compressed, tables);
  }
  return Pages{.c = c}.Count();
}

Status SequenceState::SavePages(SequenceCache* cache, const WriteStatePage& write) {
  // What was read ahead of the next step is read by it again.
  if (cache->impl_->stage != nullptr) cache->impl_->stage->Forget();
  return Pages{.c = *cache->impl_, .write = &write}.Walk();
}

Status SequenceState::LoadTables(Position end, const CheckPages& check, StateReader* tables,
                                 SequenceCache* cache) {
  SequenceCache::Impl& c = *cache->impl_;
  c.rows_evicted = tables->Number<int64_t>();
  c.moved = LoadMoves(tables);
  Tables loading = {.c = c, .saved = LoadSavedTables(end, c.table_of_group.size(), tables)};
  EBB_RETURN_IF_ERROR(tables->End());
  EBB_RETURN_IF_ERROR(loading.CheckTiers());
  EBB_RETURN_IF_ERROR(check(loading.Count()));
  return loading.Load();
}

Status SequenceState::LoadPages(SequenceCache* cache, const ReadStatePage& read) {
  return Pages{.c = *cache->impl_, .read = &read}.Walk();
}

}  // namespace ebb
