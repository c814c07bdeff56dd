// Rows read or written for a move, wherever their pages lie: in the one memory as they are, in a
// file by whole pages of all tables together, beyond a device packed, a batch in one copy.
#include <algorithm>
#include <cstring>
#include <utility>

#include "src/kv/row_carrier.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

std::vector<uint32_t> Union(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

template <typename Pages>
T1Edits::Access AccessTo(const Pages& pages, uint32_t page) {
  if (!std::ranges::binary_search(pages.writes, page)) return T1Edits::Access::kRead;
  return std::ranges::binary_search(pages.reads, page) ? T1Edits::Access::kReadAndWrite
                                                       : T1Edits::Access::kWrite;
}

}  // namespace

void SequenceCache::Impl::CopyRow(const RowAddress& from, const RowAddress& to) const {
  std::memcpy(to.key, from.key, format.RowStride());
  std::memcpy(to.value, from.value, format.RowStride());
}

void SequenceCache::Impl::FreePagesOf(std::span<const TableEdit> tables) {
  for (const TableEdit& table : tables) {
    freed = table.freed;
    FreePages(table.shared);
  }
  FreeInFile();
}

// Calls table.edit(stream, rows) for the tables' streams, rows[i] being where the row of slots[i]
// is read and written meanwhile.
Status SequenceCache::Impl::EditRows(std::span<const TableEdit> tables) {
  if (!stores.device->one_memory()) {
    for (const TableEdit& table : tables) EBB_RETURN_IF_ERROR(CarryRows(table));
    return OkStatus();
  }
  std::vector<RowAddress> rows;
  return EditStreams(tables, [&](const TableEdit& table, const Stream& stream) {
    rows.clear();
    for (const uint32_t slot : table.slots) rows.push_back(RowAt(stream, slot));
    table.edit(stream, rows);
  });
}

// Calls edit(table, stream) for the tables' streams while the T1 pages that are read (as they are
// in the file) and written have an address; writes those back, the last ones behind the next step.
// Streams that need none of the file's pages do not wait for it, nor fail with it.
Status SequenceCache::Impl::EditStreams(std::span<const TableEdit> tables, const StreamEdit& edit) {
  std::vector<std::pair<const TableEdit*, const Stream*>> edited;
  std::vector<T1Edits::Unit> units;
  for (const TableEdit& table : tables) {
    const std::vector<uint32_t> pages = Union(table.pages.reads, table.pages.writes);
    for (const int group : table.shared->groups) {
      for (Stream& stream : StreamsOf(group)) {
        if (!HasFile() || pages.empty()) {
          edit(table, stream);
          continue;
        }
        edited.emplace_back(&table, &stream);
        T1Edits::Unit& unit = units.emplace_back();
        for (const uint32_t page : pages) {
          unit.push_back({.file_page = stream.refs[page].id(),
                          .access = AccessTo(table.pages, page),
                          .address = &stream.pages[page]});
        }
      }
    }
  }
  if (units.empty()) return OkStatus();
  return edits->Run(units, [&](size_t i) { edit(*edited[i].first, *edited[i].second); });
}

// As EditRows(), on a device: rows of T1 are edited in the carrier's memory there.
Status SequenceCache::Impl::CarryRows(const TableEdit& table) {
  const std::vector<uint32_t> in_t1 = Union(table.pages.reads, table.pages.writes);
  std::vector<uint32_t> carried;  // indices of slots
  for (uint32_t i = 0; i < table.slots.size(); ++i) {
    if (std::ranges::binary_search(in_t1, table.slots[i] / kRowsPerPage)) carried.push_back(i);
  }
  std::vector<Stream*> all;
  for (const int group : table.shared->groups) {
    for (Stream& stream : StreamsOf(group)) all.push_back(&stream);
  }
  const size_t bytes_per_stream = carried.size() * RowBytes();
  const size_t at_once = carried.empty()
                             ? all.size()
                             : std::clamp<size_t>(kT1EditBytes / bytes_per_stream, 1, all.size());
  for (size_t first = 0; first < all.size(); first += at_once) {
    const auto batch = std::span(all).subspan(first, std::min(at_once, all.size() - first));
    EBB_RETURN_IF_ERROR(CarryBatch(batch, table, carried));
  }
  return OkStatus();
}

Status SequenceCache::Impl::CarryBatch(std::span<Stream* const> batch, const TableEdit& table,
                                       std::span<const uint32_t> carried) {
  const std::span<const uint32_t> slots = table.slots;
  const size_t num_bytes = batch.size() * carried.size() * RowBytes();
  const auto packed = [&](std::byte* memory, size_t stream, size_t row) -> RowAddress {
    std::byte* key = memory + (stream * carried.size() + row) * RowBytes();
    return {.key = key, .value = key + format.RowStride()};
  };
  const auto for_each_on_host = [&](const auto& visit) {
    for (size_t s = 0; s < batch.size(); ++s) {
      for (size_t i = 0; i < carried.size(); ++i) {
        const uint32_t slot = slots[carried[i]];
        visit(RowAt(batch[s]->host_pages[slot / kRowsPerPage], slot),
              packed(stores.carrier->on_host(), s, i));
      }
    }
  };
  const bool up = num_bytes > 0 && table.pages.writes.empty();
  const bool down = num_bytes > 0 && !table.pages.writes.empty();
  if (up) {
    for_each_on_host([&](const RowAddress& row, const RowAddress& at) { CopyRow(row, at); });
    EBB_RETURN_IF_ERROR(stores.carrier->ToDevice(num_bytes));
  }
  {
    const DeviceCall call(stores.device);
    std::vector<RowAddress> rows(slots.size());
    for (size_t s = 0; s < batch.size(); ++s) {
      size_t i = 0;
      for (size_t slot = 0; slot < slots.size(); ++slot) {
        const bool is_carried = i < carried.size() && carried[i] == slot;
        rows[slot] = is_carried ? packed(stores.carrier->on_device(), s, i++)
                                : RowAt(*batch[s], slots[slot]);
      }
      table.edit(*batch[s], rows);
    }
  }
  if (down) {
    EBB_RETURN_IF_ERROR(stores.carrier->ToHost(num_bytes));
    for_each_on_host([&](const RowAddress& row, const RowAddress& at) { CopyRow(at, row); });
  }
  return OkStatus();
}

}  // namespace ebb
