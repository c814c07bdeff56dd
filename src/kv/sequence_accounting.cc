// The costs of a cache, and checks that it is sound.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

template <typename T>
size_t BytesOf(const std::vector<T>& array) {
  return array.capacity() * sizeof(T);
}

size_t TableBytes(const GroupTable& group_table) {
  return sizeof(GroupTable) - 2 * sizeof(TokenTable) + group_table.full.table_bytes() +
         group_table.compressed.table_bytes() + BytesOf(group_table.groups) +
         group_table.positions.capacity() * sizeof(Position) +
         (group_table.full_rows.capacity() + group_table.compressed_rows.capacity()) *
             sizeof(uint32_t) +
         BytesOf(group_table.by_tier[0].slots) + BytesOf(group_table.by_tier[0].rows) +
         BytesOf(group_table.by_tier[1].slots) + BytesOf(group_table.by_tier[1].rows);
}

Status CheckMerged(const GroupTable& group_table) {
  if (group_table.compressed.num_rows() == 0) {
    return group_table.positions.empty() && group_table.full_rows.empty()
               ? OkStatus()
               : Internal("positions are merged although T2 is empty");
  }
  GroupTable fresh = group_table;
  fresh.MergePositions();
  const bool same = fresh.positions == group_table.positions &&
                    fresh.full_rows == group_table.full_rows &&
                    fresh.compressed_rows == group_table.compressed_rows;
  return same ? OkStatus() : Internal("merged positions are stale");
}

}  // namespace

CacheAccounting SequenceCache::accounting() const {
  const Impl& c = *impl_;
  CacheAccounting sum;
  sum.moves = c.moved;
  sum.table_bytes = sizeof(Impl) + BytesOf(c.tables) + BytesOf(c.table_of_group) +
                    BytesOf(c.streams) + BytesOf(c.added) + BytesOf(c.freed) +
                    BytesOf(c.full_index) + BytesOf(c.compressed_index) + BytesOf(c.tiers) +
                    c.lent.table_bytes() + BytesOf(c.pages_with_lent);
  const auto add = [&](Tier tier, size_t rows, size_t pages, size_t row_bytes, size_t page_bytes) {
    TierAccounting& of_tier = sum.tiers[static_cast<int>(tier)];
    of_tier.rows += static_cast<int64_t>(rows);
    of_tier.row_bytes += rows * row_bytes;
    of_tier.page_bytes += pages * page_bytes;
    of_tier.fair_page_bytes += pages * page_bytes;
  };
  for (const auto& group_table : c.tables) {
    const size_t streams = c.NumStreams(*group_table);
    const TokenTable& full = group_table->full;
    for (const Tier tier : {Tier::kT0, Tier::kT1}) {
      add(tier, full.num_rows(tier) * streams, full.num_pages(tier) * streams, c.RowBytes(),
          c.format.PageBytes());
    }
    if (c.stores.t2 != nullptr) {
      add(Tier::kT2, group_table->compressed.num_rows() * streams,
          group_table->compressed.num_pages() * streams, c.compressed.RowStride(),
          c.compressed.PageBytes());
    }
    sum.table_bytes += TableBytes(*group_table);
    c.AddSharedBytes(*group_table, &sum);
  }
  for (const Stream& stream : c.streams) {
    sum.table_bytes += BytesOf(stream.refs) + BytesOf(stream.pages) + BytesOf(stream.t1_pages) +
                       BytesOf(stream.compressed_refs) + BytesOf(stream.compressed_pages) +
                       BytesOf(stream.key_centre);
  }
  for (const auto& pages : c.pages_with_lent) sum.table_bytes += BytesOf(pages);
  if (c.stores.t1 != nullptr) sum.staging_bytes = c.stores.t1->buffer_bytes();
  sum.rows_evicted = c.rows_evicted;
  sum.num_tables = static_cast<int64_t>(c.tables.size());
  return sum;
}

size_t SequenceCache::page_bytes(Tier tier) const {
  size_t num_pages = 0;
  for (const auto& group_table : impl_->tables) {
    num_pages +=
        impl_->NumStreams(*group_table) * (tier == Tier::kT2 ? group_table->compressed.num_pages()
                                                             : group_table->full.num_pages(tier));
  }
  return num_pages * impl_->PageBytes(tier);
}

const MoveAccounting& SequenceCache::moves() const { return impl_->moved; }

double SequenceCache::stage_wait_seconds() const {
  return impl_->stage == nullptr ? 0 : impl_->stage->wait_seconds();
}

size_t SequenceCache::RoomForTokens() const {
  const Impl& c = *impl_;
  const size_t new_pages = c.stores.t0->NumAvailable() / c.streams.size();
  size_t free_slots = std::numeric_limits<size_t>::max();
  for (const auto& group_table : c.tables) {
    const TokenTable& full = group_table->full;
    free_slots = std::min(free_slots, full.NumFreeSlots(Tier::kT0));
  }
  return free_slots + new_pages * kRowsPerPage;
}

Status SequenceCache::Impl::CheckStream(const Stream& stream) const {
  const GroupTable& group_table = *stream.table;
  if (stream.refs.size() < group_table.full.page_end() ||
      stream.pages.size() != stream.refs.size() ||
      stream.compressed_refs.size() < group_table.compressed.page_end() ||
      stream.compressed_pages.size() != stream.compressed_refs.size()) {
    return Internal("a stream has too few pages");
  }
  for (size_t page = 0; page < stream.refs.size(); ++page) {
    const PageRef ref = stream.refs[page];
    const bool present = group_table.full.HasPage(page);
    if (ref.empty() == present || (present && ref.tier() != group_table.full.TierOf(page))) {
      return Internal(fmt::format("a stream and its table disagree on page {}", page));
    }
    if (!present) {
      if (stream.pages[page] == nullptr) continue;
      return Internal(fmt::format("page {} has an address although it is absent", page));
    }
    const TierPages& pages = *PagesOf(ref.tier());
    const bool is_staged = ref.tier() == Tier::kT1 && stage != nullptr;
    const auto& addresses = is_staged && T1HasAddresses() ? stream.t1_pages : stream.pages;
    const bool has_address = !is_staged || T1HasAddresses();
    if (has_address && addresses[page] != pages.Address(ref.id())) {
      return Internal(fmt::format("page {} lies elsewhere than its address", page));
    }
    if (pages.num_holders(ref.id()) > 1 && !group_table.full.IsSealed(page)) {
      return Internal(fmt::format("page {} has several holders and is not sealed", page));
    }
  }
  for (size_t page = 0; page < stream.compressed_refs.size(); ++page) {
    const PageRef ref = stream.compressed_refs[page];
    if (ref.empty() == group_table.compressed.HasPage(page) ||
        stream.compressed_pages[page] != (ref.empty() ? nullptr : stores.t2->Address(ref.id()))) {
      return Internal(fmt::format("a stream and its table disagree on page {} of T2", page));
    }
    if (!ref.empty() && stores.t2->num_holders(ref.id()) > 1 &&
        !group_table.compressed.IsSealed(page)) {
      return Internal(fmt::format("page {} of T2 has several holders and is not sealed", page));
    }
  }
  return OkStatus();
}

Status SequenceCache::Validate() const {
  impl_->Refresh();
  const Impl& c = *impl_;
  size_t num_groups = 0;
  for (size_t i = 0; i < c.tables.size(); ++i) {
    const GroupTable& group_table = *c.tables[i];
    num_groups += group_table.groups.size();
    for (const Status& status : {group_table.full.Validate(), group_table.compressed.Validate(),
                                 CheckMerged(group_table)}) {
      if (!status.ok()) return Internal(fmt::format("table {}: {}", i, status.message()));
    }
    for (const int group : group_table.groups) {
      if (c.table_of_group[group] != &group_table) {
        return Internal(fmt::format("group {} is in the list of table {}, not its own", group, i));
      }
      for (const Stream& stream : impl_->StreamsOf(group)) {
        if (stream.table != &group_table) {
          return Internal(fmt::format("a stream of group {} has another table", group));
        }
        EBB_RETURN_IF_ERROR(c.CheckStream(stream));
      }
    }
  }
  if (num_groups != c.table_of_group.size()) {
    return Internal(fmt::format("{} groups stand in tables", num_groups));
  }
  return OkStatus();
}

}  // namespace ebb
