// Rows read or written for a move, wherever their pages lie: in the one memory as they are, in a
// file by whole pages, beyond a device packed, a batch in one copy.
#include <algorithm>
#include <cstring>

#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/kv/row_carrier.h"
#include "src/kv/sequence_cache_impl.h"

namespace ebb {
namespace {

std::vector<uint32_t> Union(std::span<const uint32_t> a, std::span<const uint32_t> b) {
  std::vector<uint32_t> both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

}  // namespace

void SequenceCache::Impl::CopyRow(const RowAddress& from, const RowAddress& to) const {
  std::memcpy(to.key, from.key, format.RowStride());
  std::memcpy(to.value, from.value, format.RowStride());
}

void SequenceCache::Impl::MoveRowsWithin(const Stream& stream, Tier place) const {
  const auto& pages = place == Tier::kT1 && IsRemote() ? stream.host_pages : stream.pages;
  const auto at = [&](uint32_t slot) { return RowAt(pages[slot / kRowsPerPage], slot); };
  for (const SlotMove& move : moves) CopyRow(at(move.from), at(move.to));
}

// Calls edit(stream, rows) for the table's streams, rows[i] being where the row of slots[i] is read
// and written meanwhile. `pages` are the T1 pages among those of the slots: those whose present
// rows are wanted, and those that are changed.
Status SequenceCache::Impl::EditRows(SharedTable* shared, std::span<const uint32_t> slots,
                                     const T1Pages& pages, const RowEdit& edit) {
  if (!stores.device->one_memory()) return CarryRows(shared, slots, pages, edit);
  std::vector<RowAddress> rows(slots.size());
  return EditStreams(shared, pages, [&](const Stream& stream) {
    for (size_t i = 0; i < slots.size(); ++i) rows[i] = RowAt(stream, slots[i]);
    edit(stream, rows);
  });
}

// Calls edit(stream) for the table's streams while the T1 pages that are read (as they are in the
// file) and written have an address; writes those back.
Status SequenceCache::Impl::EditStreams(SharedTable* shared, const T1Pages& pages,
                                        const StreamEdit& edit) {
  std::vector<Stream*> all;
  for (const int group : shared->groups) {
    for (Stream& stream : StreamsOf(group)) all.push_back(&stream);
  }
  const size_t num_pages = Union(pages.reads, pages.writes).size();
  if (!HasFile() || num_pages == 0) {
    for (const Stream* stream : all) edit(*stream);
    return OkStatus();
  }
  const size_t bytes_per_stream = num_pages * format.PageBytes();
  const size_t at_once = std::clamp<size_t>(kT1EditBytes / bytes_per_stream, 1, all.size());
  if (edit_memory.size() < at_once * bytes_per_stream) {
    EBB_ASSIGN_OR_RETURN(edit_memory, IoMemory::Map(at_once * bytes_per_stream));
  }
  Status status;
  for (size_t first = 0; status.ok() && first < all.size(); first += at_once) {
    const auto batch = std::span(all).subspan(first, std::min(at_once, all.size() - first));
    status = EditBatch(batch, pages, edit_memory.data(), edit);
  }
  // Groups are edited one after another: mapping memory for each would cost more than its reads.
  if (edit_memory.size() > kT1EditBytes) edit_memory = IoMemory();
  return status;
}

Status SequenceCache::Impl::EditBatch(std::span<Stream* const> batch, const T1Pages& edited,
                                      std::byte* memory, const StreamEdit& edit) {
  const auto run = [&](std::span<const uint32_t> pages, auto start) -> Status {
    std::vector<PageIo> requests;
    for (const Stream* stream : batch) {
      for (const uint32_t page : pages) {
        requests.push_back({.page = stream->file_pages[page], .memory = stream->pages[page]});
      }
    }
    if (requests.empty()) return OkStatus();
    EBB_ASSIGN_OR_RETURN(const auto ticket, (stores.t1_file->*start)(requests));
    return stores.t1_file->Wait(ticket);
  };
  const std::vector<uint32_t> pages = Union(edited.reads, edited.writes);
  for (Stream* stream : batch) {
    for (const uint32_t page : pages) {
      stream->pages[page] = memory;
      memory += format.PageBytes();
    }
  }
  Status status = run(edited.reads, &PageFile::StartRead);
  if (status.ok()) {
    for (const Stream* stream : batch) edit(*stream);
    status = run(edited.writes, &PageFile::StartWrite);
  }
  for (Stream* stream : batch) {
    for (const uint32_t page : pages) stream->pages[page] = nullptr;
  }
  return status;
}

// As EditRows(), on a device: rows of T1 are edited in the carrier's memory there.
Status SequenceCache::Impl::CarryRows(SharedTable* shared, std::span<const uint32_t> slots,
                                      const T1Pages& pages, const RowEdit& edit) {
  const std::vector<uint32_t> in_t1 = Union(pages.reads, pages.writes);
  std::vector<uint32_t> carried;  // indices of slots
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (std::ranges::binary_search(in_t1, slots[i] / kRowsPerPage)) carried.push_back(i);
  }
  std::vector<Stream*> all;
  for (const int group : shared->groups) {
    for (Stream& stream : StreamsOf(group)) all.push_back(&stream);
  }
  const size_t bytes_per_stream = carried.size() * RowBytes();
  const size_t at_once = carried.empty()
                             ? all.size()
                             : std::clamp<size_t>(kT1EditBytes / bytes_per_stream, 1, all.size());
  for (size_t first = 0; first < all.size(); first += at_once) {
    const auto batch = std::span(all).subspan(first, std::min(at_once, all.size() - first));
    EBB_RETURN_IF_ERROR(CarryBatch(batch, slots, carried, pages, edit));
  }
  return OkStatus();
}

Status SequenceCache::Impl::CarryBatch(std::span<Stream* const> batch,
                                       std::span<const uint32_t> slots,
                                       std::span<const uint32_t> carried, const T1Pages& pages,
                                       const RowEdit& edit) {
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
  const bool up = num_bytes > 0 && pages.writes.empty();
  const bool down = num_bytes > 0 && !pages.writes.empty();
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
      edit(*batch[s], rows);
    }
  }
  if (down) {
    EBB_RETURN_IF_ERROR(stores.carrier->ToHost(num_bytes));
    for_each_on_host([&](const RowAddress& row, const RowAddress& at) { CopyRow(at, row); });
  }
  return OkStatus();
}

}  // namespace ebb
