// Invariants, besides those of the header: every group stands in the list of exactly one table;
// stream.pages[p] is null exactly when its table lacks page p, and the arena knows the address of
// that element as the page's owner.
#include "src/kv/sequence_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "src/kv/token_table.h"

namespace ebb {
namespace {

// A table and the groups that share it.
struct SharedTable {
  TokenTable table;
  std::vector<int> groups;  // ascending
};

// The memory of one (layer, kv head).
struct Stream {
  const TokenTable* table = nullptr;
  std::vector<std::byte*> pages;  // [at least table->page_end()]; null: the table lacks this page
};

}  // namespace

struct SequenceCache::Impl {
  ModelShape shape;
  PageFormat format;
  Granularity granularity;
  Arena* arena;
  int streams_per_group = 1;
  std::vector<Stream> streams;                       // [num_layers * num_kv_heads], layer-major
  std::vector<std::unique_ptr<SharedTable>> tables;  // in order of their creation
  std::vector<SharedTable*> table_of_group;          // [num_groups]
  size_t next_compacted = 0;  // the table that Compact() begins with, so that none starves
  int64_t rows_evicted = 0;
  std::vector<uint32_t> pages_changed;  // work space: indices that a table added or freed
  std::vector<SlotMove> moves;          // work space

  [[nodiscard]] size_t StreamIndex(int layer, int kv_head) const {
    assert(layer >= 0 && layer < shape.num_layers && kv_head >= 0 && kv_head < shape.num_kv_heads);
    return static_cast<size_t>(layer) * shape.num_kv_heads + kv_head;
  }

  [[nodiscard]] std::span<Stream> StreamsOf(int group) {
    return std::span(streams).subspan(static_cast<size_t>(group) * streams_per_group,
                                      streams_per_group);
  }

  [[nodiscard]] size_t NumStreams(const SharedTable& shared) const {
    return shared.groups.size() * streams_per_group;
  }

  [[nodiscard]] size_t RowBytes() const { return 2 * format.RowStride(); }

  // The group's table, for itself alone.
  TokenTable* Own(int group) {
    SharedTable* shared = table_of_group[group];
    if (shared->groups.size() == 1) return &shared->table;
    tables.push_back(std::make_unique<SharedTable>(SharedTable{shared->table, {group}}));
    std::erase(shared->groups, group);
    table_of_group[group] = tables.back().get();
    for (Stream& stream : StreamsOf(group)) stream.table = &tables.back()->table;
    return &tables.back()->table;
  }

  // The new array of pages tells the arena where each page's owner is now.
  void GrowPages(Stream* stream, size_t page_end) {
    if (page_end <= stream->pages.size()) return;
    std::vector<std::byte*> grown(std::max(page_end, 2 * stream->pages.size()));
    for (size_t page = 0; page < stream->pages.size(); ++page) {
      if (stream->pages[page] != nullptr) arena->Rebind(&stream->pages[page], &grown[page]);
    }
    stream->pages.swap(grown);
  }

  void GrowTables(size_t num_tokens) {
    for (const auto& shared : tables) {
      shared->table.ReserveRows(num_tokens);
      const size_t page_end = shared->table.page_end() + shared->table.PagesNeeded(num_tokens);
      for (const int group : shared->groups) {
        for (Stream& stream : StreamsOf(group)) GrowPages(&stream, page_end);
      }
    }
  }

  void AllocatePages(SharedTable* shared) {
    for (const int group : shared->groups) {
      for (Stream& stream : StreamsOf(group)) {
        for (const uint32_t page : pages_changed) {
          if (!arena->Allocate(&stream.pages[page]).ok()) std::abort();  // Reserve() vouched for it
        }
      }
    }
  }

  void FreePages(const SharedTable& shared) {
    for (const int group : shared.groups) {
      for (Stream& stream : StreamsOf(group)) {
        for (const uint32_t page : pages_changed) arena->Free(&stream.pages[page]);
      }
    }
  }

  // Frees the pages that a removal left empty, and counts the rows as evicted.
  void FinishRemoval(int group, size_t num_removed) {
    FreePages(*table_of_group[group]);
    rows_evicted += static_cast<int64_t>(num_removed) * streams_per_group;
  }

  void CopyRows(const Stream& stream) const {
    const size_t stride = format.RowStride();
    for (const SlotMove& move : moves) {
      const std::byte* from =
          stream.pages[move.from / kRowsPerPage] + move.from % kRowsPerPage * stride;
      std::byte* to = stream.pages[move.to / kRowsPerPage] + move.to % kRowsPerPage * stride;
      std::memcpy(to, from, stride);
      std::memcpy(to + format.ValueOffset(), from + format.ValueOffset(), stride);
    }
  }
};

SequenceCache::SequenceCache(const ModelShape& shape, const PageFormat& format,
                             Granularity granularity, Arena* arena)
    : impl_(std::make_unique<Impl>()) {
  assert(arena->page_bytes() == format.PageBytes());
  Impl& c = *impl_;
  c.shape = shape;
  c.format = format;
  c.granularity = granularity;
  c.arena = arena;
  const int num_groups = shape.NumGroups(granularity);
  c.streams.resize(static_cast<size_t>(shape.num_layers) * shape.num_kv_heads);
  c.streams_per_group = static_cast<int>(c.streams.size()) / num_groups;
  c.tables.push_back(std::make_unique<SharedTable>());
  SharedTable* shared = c.tables.front().get();
  for (int group = 0; group < num_groups; ++group) shared->groups.push_back(group);
  c.table_of_group.assign(num_groups, shared);
  for (Stream& stream : c.streams) stream.table = &shared->table;
}

SequenceCache::~SequenceCache() {
  for (Stream& stream : impl_->streams) {
    for (std::byte*& page : stream.pages) {
      if (page != nullptr) impl_->arena->Free(&page);
    }
  }
}

Status SequenceCache::Append(Position first, int num_tokens) {
  Impl& c = *impl_;
  if (num_tokens < 0 || first < 0 || first > std::numeric_limits<Position>::max() - num_tokens) {
    return InvalidArgument(
        fmt::format("cannot append {} tokens at position {}", num_tokens, first));
  }
  size_t num_pages = 0;
  for (const auto& shared : c.tables) {
    const auto positions = shared->table.positions();
    if (!positions.empty() && first <= positions.back()) {
      return InvalidArgument(fmt::format("position {} does not follow position {}, which is cached",
                                         first, positions.back()));
    }
    num_pages += shared->table.PagesNeeded(num_tokens) * c.NumStreams(*shared);
  }
  EBB_RETURN_IF_ERROR(c.arena->Reserve(num_pages));
  try {
    c.GrowTables(num_tokens);
  } catch (const std::bad_alloc&) {
    c.arena->Compact(0);  // takes the promise of these pages back
    return ResourceExhausted(
        fmt::format("no memory for the token tables of {} more tokens", num_tokens));
  }
  for (const auto& shared : c.tables) {
    c.pages_changed.clear();
    shared->table.Append(first, num_tokens, &c.pages_changed);
    c.AllocatePages(shared.get());
  }
  return OkStatus();
}

void SequenceCache::Retain(int group, std::span<const uint32_t> kept) {
  Impl& c = *impl_;
  const size_t num_rows = c.table_of_group[group]->table.num_rows();
  if (kept.size() == num_rows) return;
  c.pages_changed.clear();
  c.Own(group)->Retain(kept, &c.pages_changed);
  c.FinishRemoval(group, num_rows - kept.size());
}

void SequenceCache::Remove(int group, std::span<const uint32_t> removed) {
  Impl& c = *impl_;
  if (removed.empty()) return;
  c.pages_changed.clear();
  c.Own(group)->Remove(removed, &c.pages_changed);
  c.FinishRemoval(group, removed.size());
}

void SequenceCache::TruncateTo(Position end) {
  Impl& c = *impl_;
  for (const auto& shared : c.tables) {
    c.pages_changed.clear();
    shared->table.TruncateTo(end, &c.pages_changed);
    c.FreePages(*shared);
  }
}

void SequenceCache::SetLastVisible(int group, uint32_t index, Position last) {
  impl_->Own(group)->SetLastVisible(index, last);
}

void SequenceCache::SetPositions(int group, std::span<const Position> positions) {
  impl_->Own(group)->SetPositions(positions);
}

size_t SequenceCache::Compact(size_t max_bytes) {
  Impl& c = *impl_;
  size_t num_bytes = 0;
  const size_t num_tables = c.tables.size();
  const size_t first = c.next_compacted;
  for (size_t i = first; i < first + num_tables && num_bytes < max_bytes; ++i) {
    SharedTable& shared = *c.tables[i % num_tables];
    const size_t bytes_per_move = c.RowBytes() * c.NumStreams(shared);
    c.moves.clear();
    c.pages_changed.clear();
    shared.table.Compact((max_bytes - num_bytes) / bytes_per_move, &c.moves, &c.pages_changed);
    for (const int group : shared.groups) {
      for (const Stream& stream : c.StreamsOf(group)) c.CopyRows(stream);
    }
    c.FreePages(shared);
    num_bytes += c.moves.size() * bytes_per_move;
    if (!c.moves.empty()) c.next_compacted = (i + 1) % num_tables;
  }
  return num_bytes;
}

RowsView SequenceCache::View(int layer, int kv_head) const {
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  return {.pages = stream.pages.data(),
          .slots = stream.table->slots(),
          .positions = stream.table->positions(),
          .last_visible = stream.table->last_visible()};
}

SequenceCache::RowAddress SequenceCache::Row(int layer, int kv_head, uint32_t index) {
  const Stream& stream = impl_->streams[impl_->StreamIndex(layer, kv_head)];
  assert(index < stream.table->num_rows());
  const uint32_t slot = stream.table->slots()[index];
  std::byte* key =
      stream.pages[slot / kRowsPerPage] + slot % kRowsPerPage * impl_->format.RowStride();
  return {.key = key, .value = key + impl_->format.ValueOffset()};
}

std::span<const Position> SequenceCache::positions(int group) const {
  return impl_->table_of_group[group]->table.positions();
}

int SequenceCache::GroupOf(int layer, int kv_head) const {
  return static_cast<int>(impl_->StreamIndex(layer, kv_head)) / impl_->streams_per_group;
}

int SequenceCache::num_groups() const { return static_cast<int>(impl_->table_of_group.size()); }
int SequenceCache::streams_per_group() const { return impl_->streams_per_group; }

Granularity SequenceCache::granularity() const { return impl_->granularity; }

const PageFormat& SequenceCache::format() const { return impl_->format; }

size_t SequenceCache::max_rows() const {
  size_t num_rows = 0;
  for (const auto& shared : impl_->tables) num_rows = std::max(num_rows, shared->table.num_rows());
  return num_rows;
}

CacheAccounting SequenceCache::accounting() const {
  const Impl& c = *impl_;
  CacheAccounting sum;
  TierAccounting& t0 = sum.tiers[static_cast<int>(Tier::kT0)];
  sum.table_bytes = sizeof(Impl) + c.tables.capacity() * sizeof(c.tables[0]) +
                    c.table_of_group.capacity() * sizeof(c.table_of_group[0]) +
                    c.streams.capacity() * sizeof(Stream) +
                    c.pages_changed.capacity() * sizeof(uint32_t) +
                    c.moves.capacity() * sizeof(SlotMove);
  for (const auto& shared : c.tables) {
    const size_t num_streams = c.NumStreams(*shared);
    t0.rows += static_cast<int64_t>(shared->table.num_rows() * num_streams);
    t0.page_bytes += shared->table.num_pages() * num_streams * c.format.PageBytes();
    sum.table_bytes += sizeof(SharedTable) - sizeof(TokenTable) + shared->table.table_bytes() +
                       shared->groups.capacity() * sizeof(int);
  }
  for (const Stream& stream : c.streams) {
    sum.table_bytes += stream.pages.capacity() * sizeof(std::byte*);
  }
  t0.row_bytes = static_cast<size_t>(t0.rows) * c.RowBytes();
  sum.rows_evicted = c.rows_evicted;
  sum.num_tables = static_cast<int64_t>(c.tables.size());
  return sum;
}

Status SequenceCache::Validate() const {
  const Impl& c = *impl_;
  size_t num_groups = 0;
  for (size_t i = 0; i < c.tables.size(); ++i) {
    const SharedTable& shared = *c.tables[i];
    num_groups += shared.groups.size();
    if (Status status = shared.table.Validate(); !status.ok()) {
      return Internal(fmt::format("table {}: {}", i, status.message()));
    }
    for (const int group : shared.groups) {
      if (c.table_of_group[group] != &shared) {
        return Internal(fmt::format("group {} is in the list of table {}, not its own", group, i));
      }
      for (const Stream& stream : impl_->StreamsOf(group)) {
        if (stream.table != &shared.table || stream.pages.size() < shared.table.page_end()) {
          return Internal(fmt::format("a stream of group {} does not fit table {}", group, i));
        }
        for (size_t page = 0; page < stream.pages.size(); ++page) {
          if ((stream.pages[page] != nullptr) != shared.table.HasPage(page)) {
            return Internal(
                fmt::format("table {} and group {} disagree on page {}", i, group, page));
          }
        }
      }
    }
  }
  if (num_groups != c.table_of_group.size()) {
    return Internal(fmt::format("{} groups stand in tables", num_groups));
  }
  return OkStatus();
}

}  // namespace ebb
