// Rows that are read or written for a move, wherever they lie.
#include <algorithm>
#include <cstring>
#include <vector>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {

void TableEdit::SetAllInT1(TierRows::Access access, std::span<const TablePage> added) {
  for (uint32_t i = 0; i < slots.size(); ++i) in_t1.push_back(i);
  t1_rows.slots = slots;
  t1_rows.access = access;
  for (const TablePage& page : added) t1_rows.fresh.push_back(page.index);
  std::ranges::sort(t1_rows.fresh);
}

void TableEdit::FindRowsInT1(TierRows::Access access, std::span<const TablePage> added) {
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (group_table->full.TierOf(slots[i].page()) != Tier::kT1) continue;
    in_t1.push_back(i);
    t1_rows.slots.push_back(slots[i]);
  }
  t1_rows.access = access;
  for (const TablePage& page : added) t1_rows.fresh.push_back(page.index);
  std::ranges::sort(t1_rows.fresh);
}

void SequenceCache::Impl::FreePagesOf(std::span<const TableEdit> tables) {
  for (const TableEdit& table : tables) {
    freed = table.freed;
    FreePages(table.group_table);
  }
  EndFreePages();
}

// Calls table.edit(stream, addresses) for the tables' streams, addresses[i] being where the row of
// slots[i] is read and written meanwhile. Streams that need no rows of T1 do not wait for it, nor
// fail with it.
Status SequenceCache::Impl::EditRows(std::span<const TableEdit> tables) {
  std::vector<TierRows::Edit> edits;
  std::vector<std::pair<const TableEdit*, const Stream*>> edited;
  std::vector<RowAddress> addresses;
  for (const TableEdit& table : tables) {
    for (const int group : table.group_table->groups) {
      for (const Stream& stream : StreamsOf(group)) {
        if (!table.in_t1.empty()) {
          edits.push_back({.rows = &table.t1_rows, .pages = stream.refs});
          edited.emplace_back(&table, &stream);
          continue;
        }
        addresses.clear();
        for (const Slot slot : table.slots) addresses.push_back(RowAt(stream, slot));
        const DeviceCall call(device);
        table.edit(stream, addresses);
      }
    }
  }
  if (edits.empty()) return OkStatus();
  return stores.t1->EditRows(edits, [&](size_t i, std::span<const RowAddress> of_t1) {
    const auto& [table, stream] = edited[i];
    if (of_t1.size() == table->slots.size()) {
      table->edit(*stream, of_t1);
      return;
    }
    addresses.resize(table->slots.size());
    size_t next = 0;  // of T1's
    for (uint32_t k = 0; k < table->slots.size(); ++k) {
      const bool is_in_t1 = next < of_t1.size() && table->in_t1[next] == k;
      addresses[k] = is_in_t1 ? of_t1[next++] : RowAt(*stream, table->slots[k]);
    }
    table->edit(*stream, addresses);
  });
}

// Rows between T0, on a closed device, and T1: packed, a few MiB at once.
Status SequenceCache::Impl::CarryRows(std::span<const TableEdit> tables, bool to_t1) {
  const size_t stride = format.RowStride();
  std::vector<TierRows::Edit> edits;
  std::vector<size_t> first;  // [edits]: of the packed keys and values
  std::vector<std::byte*> on_device;
  std::vector<std::byte> packed;
  const auto carry = [&]() -> Status {
    packed.resize(on_device.size() * stride);
    if (to_t1) EBB_RETURN_IF_ERROR(device->ReadRows(on_device, stride, packed.data()));
    EBB_RETURN_IF_ERROR(
        stores.t1->EditRows(edits, [&](size_t i, std::span<const RowAddress> in_t1) {
          std::byte* at = packed.data() + first[i] * stride;
          for (const RowAddress& row : in_t1) {
            for (std::byte* const beyond : {row.key, row.value}) {
              std::memcpy(to_t1 ? beyond : at, to_t1 ? at : beyond, stride);
              at += stride;
            }
          }
        }));
    if (!to_t1) EBB_RETURN_IF_ERROR(device->WriteRows(on_device, stride, packed.data()));
    edits.clear();
    first.clear();
    on_device.clear();
    return OkStatus();
  };
  for (const TableEdit& table : tables) {
    for (const int group : table.group_table->groups) {
      for (const Stream& stream : StreamsOf(group)) {
        edits.push_back({.rows = &table.t1_rows, .pages = stream.refs});
        first.push_back(on_device.size());
        for (const Slot slot : table.in_t0) {
          const RowAddress row = RowAt(stream, slot);
          on_device.insert(on_device.end(), {row.key, row.value});
        }
        if (on_device.size() * stride >= kEditBytes) EBB_RETURN_IF_ERROR(carry());
      }
    }
  }
  return on_device.empty() ? OkStatus() : carry();
}

}  // namespace ebb
