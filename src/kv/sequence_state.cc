// Saves and loads the tables of a cache: rows_evicted, the moves so far, and for each table its
// groups and its rows. docs/dev/formats.md specifies the bytes.
#include "src/kv/sequence_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

void SaveTable(const TokenTable& table, StateWriter* to) {
  const TokenTableState state = table.State();
  std::vector<uint8_t> tiers;
  std::vector<uint64_t> used;
  for (const TokenTableState::Page& page : state.pages) {
    tiers.push_back(static_cast<uint8_t>(page.tier));
    used.push_back(page.used);
  }
  to->Numbers<uint8_t>(tiers);
  to->Numbers<uint64_t>(used);
  to->Numbers<Position>(state.positions);
  to->Numbers<Position>(state.last_visible);
}

TokenTableState LoadTable(Position end, StateReader* from) {
  TokenTableState state;
  const auto tiers = from->Numbers<uint8_t>();
  const auto used = from->Numbers<uint64_t>();
  state.positions = from->Numbers<Position>();
  state.last_visible = from->Numbers<Position>();
  if (tiers.size() != used.size()) from->Fail("as many tiers as pages were expected");
  size_t num_rows = 0;
  for (size_t page = 0; page < used.size() && from->ok(); ++page) {
    if (tiers[page] > 2) from->Fail(fmt::format("a page in tier {}", tiers[page]));
    if (used[page] == 0) from->Fail("a page without rows");
    num_rows += std::popcount(used[page]);
    state.pages.push_back({static_cast<Tier>(tiers[page]), used[page]});
  }
  if (num_rows != state.positions.size()) from->Fail("as many positions as rows were expected");
  // Rows are hidden only within a step, so a saved cache has no hidden rows.
  if (!state.last_visible.empty()) from->Fail("rows that are hidden");
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
  to->Number<int64_t>(moves.rows_compressed);
  to->Number<double>(moves.seconds);
  to->Number<double>(moves.seconds_down);
  to->Number<double>(moves.seconds_up);
}

MoveAccounting LoadMoves(StateReader* from) {
  MoveAccounting moves;
  moves.rows_down = from->Number<int64_t>();
  moves.rows_up = from->Number<int64_t>();
  moves.bytes_down = from->Number<uint64_t>();
  moves.bytes_up = from->Number<uint64_t>();
  moves.rows_compressed = from->Number<int64_t>();
  moves.seconds = from->Number<double>();
  moves.seconds_down = from->Number<double>();
  moves.seconds_up = from->Number<double>();
  return moves;
}

struct SavedTable {
  std::vector<int> groups;
  TokenTableState rows;
  std::vector<float> key_centres;  // [streams, head size], or empty

  [[nodiscard]] size_t NumPages(Tier tier) const {
    return std::ranges::count(rows.pages, tier, &TokenTableState::Page::tier);
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
    saved.rows = LoadTable(end, from);
    saved.key_centres = from->Numbers<float>();
    if (!std::ranges::all_of(saved.key_centres, [](float x) { return std::isfinite(x); })) {
      from->Fail("a centre of keys that is not finite");
    }
  }
  if (num_seen != num_groups) {
    from->Fail(fmt::format("{} groups, {} expected", num_seen, num_groups));
  }
  return tables;
}

}  // namespace

// Tables gives an empty cache the saved tables, with memory for all of their pages.
struct SequenceState::Tables {
  SequenceCache::Impl& c;
  std::vector<SavedTable> saved;

  [[nodiscard]] StatePages Count() const {
    StatePages sum;
    for (const SavedTable& table : saved) {
      const size_t num_streams = c.layout.NumStreamsOf(table.groups);
      sum.num_pages += table.rows.pages.size() * num_streams;
      for (const TokenTableState::Page& page : table.rows.pages) {
        sum.num_bytes += std::popcount(page.used) * c.layout.RowBytes(page.tier) * num_streams;
      }
    }
    return sum;
  }

  Status CheckTiers() const {
    for (const SavedTable& table : saved) {
      if (table.NumPages(Tier::kT1) > 0 && c.stores.t1 == nullptr) {
        return Corrupt("rows lie in T1, which is none");
      }
      if (table.NumPages(Tier::kT2) > 0 && c.stores.t2 == nullptr) {
        return Corrupt("rows lie in T2, which is none");
      }
      const size_t num_numbers = c.layout.NumStreamsOf(table.groups) * c.layout.format().head_dim;
      const bool needs_centres =
          table.NumPages(Tier::kT2) > 0 && c.layout.compressed_format().IsCentred();
      if (!table.key_centres.empty() && !c.layout.compressed_format().IsCentred()) {
        return Corrupt("no centres of keys were expected: this format of T2 has none");
      }
      if (table.key_centres.empty() ? needs_centres : table.key_centres.size() != num_numbers) {
        return Corrupt("a centre of keys for each kv head with rows in T2 was expected");
      }
    }
    return OkStatus();
  }

  // Reserves the pages. REQUIRES: Divide() was called.
  Status Reserve(ReservedPages* reserved) const {
    PageCounts counts;
    for (size_t i = 0; i < saved.size(); ++i) {
      for (const Tier tier : TokenTable::kTiers) {
        counts.Add(c.layout, *c.tables.all()[i], tier, saved[i].NumPages(tier));
      }
    }
    return reserved->Reserve(counts);
  }

  // Gives the groups of each saved table an empty table of their own.
  void Divide() {
    GroupTables::Tables divided;
    for (const SavedTable& table : saved) {
      divided.push_back(std::make_unique<GroupTable>());
      divided.back()->groups = table.groups;
    }
    c.tables.Replace(std::move(divided));
    for (const SavedTable& table : saved) SetKeyCentres(table);
  }

  void SetKeyCentres(const SavedTable& table) {
    if (table.key_centres.empty()) return;
    const size_t head_dim = c.layout.format().head_dim;
    std::span<const float> left = table.key_centres;
    for (const int group : table.groups) {
      const int first = c.layout.FirstStreamOf(group);
      for (int stream = first; stream < first + c.layout.NumStreamsOf(group); ++stream) {
        c.pages.SetKeyCentre(stream, left.first(head_dim));
        left = left.subspan(head_dim);
      }
    }
  }

  // Adds the rows to the table and the pages to every stream, or changes nothing.
  Status Fill(const SavedTable& table, GroupTable* group_table, ReservedPages* reserved) {
    c.added.clear();
    if (Status status = group_table->rows.Restore(table.rows, &c.added); !status.ok()) {
      return Corrupt(status.message());
    }
    reserved->Take(*group_table, c.added);
    group_table->ListFormats();
    return OkStatus();
  }

  Status Load() {
    Divide();
    ReservedPages reserved(&c.pages);
    Status status = Reserve(&reserved);
    for (size_t i = 0; i < saved.size() && status.ok(); ++i) {
      status = Fill(saved[i], c.tables.all()[i].get(), &reserved);
    }
    reserved.End();
    return status;
  }
};

Result<StatePages> SequenceState::SaveTables(const SequenceCache& cache, StateWriter* tables) {
  SequenceCache::Impl& c = *cache.impl_;
  EBB_RETURN_IF_ERROR(c.health.Check());
  // Waits here, although reading pages would wait too, so that the error of a failed disk is
  // returned before the file is begun.
  if (c.stores.t1 != nullptr) EBB_RETURN_IF_ERROR(c.stores.t1->WaitForWrites());
  tables->Number<int64_t>(c.rows_evicted);
  SaveMoves(c.mover.accounting(), tables);
  tables->Number<uint64_t>(c.tables.size());
  for (const auto& group_table : c.tables.all()) {
    tables->Numbers<int>(group_table->groups);
    SaveTable(group_table->rows, tables);
    std::vector<float> key_centres;
    for (const int group : group_table->groups) {
      for (const Stream& stream : c.pages.StreamsOf(group)) {
        key_centres.insert(key_centres.end(), stream.key_centre.begin(), stream.key_centre.end());
      }
    }
    tables->Numbers<float>(key_centres);
  }
  return CountPages(cache);
}

Status SequenceState::LoadTables(Position end, const CheckPages& check, StateReader* tables,
                                 SequenceCache* cache) {
  SequenceCache::Impl& c = *cache->impl_;
  c.rows_evicted = tables->Number<int64_t>();
  c.mover.Continue(LoadMoves(tables));
  Tables loading = {.c = c, .saved = LoadSavedTables(end, c.tables.num_groups(), tables)};
  EBB_RETURN_IF_ERROR(tables->End());
  EBB_RETURN_IF_ERROR(loading.CheckTiers());
  EBB_RETURN_IF_ERROR(check(loading.Count()));
  return loading.Load();
}

}  // namespace ebb
