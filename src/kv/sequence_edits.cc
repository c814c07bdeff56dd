// Rows that are read or written for a move, wherever they lie.
#include <algorithm>
#include <vector>

#include "src/kv/sequence_cache_impl.h"

namespace ebb {

void TableEdit::AddInT0(std::span<const Slot> in_t0, Access access) {
  slots.insert(slots.end(), in_t0.begin(), in_t0.end());
  t0_access = access;
}

void TableEdit::PushInT1(Slot slot) {
  t1_places.push_back(static_cast<uint32_t>(slots.size()));
  t1_rows.slots.push_back(slot);
  slots.push_back(slot);
}

void TableEdit::AddInT1(std::span<const Slot> in_t1, Access access,
                        std::span<const TablePage> fresh) {
  for (const Slot slot : in_t1) PushInT1(slot);
  t1_rows.access = access;
  for (const TablePage& page : fresh) t1_rows.fresh.push_back(page.index);
  std::ranges::sort(t1_rows.fresh);
}

void TableEdit::Add(std::span<const Slot> added, Access access, std::span<const TablePage> fresh) {
  AddInT1({}, access, fresh);
  t0_access = access;
  for (const Slot slot : added) {
    if (group_table->full.TierOf(slot.page()) == Tier::kT1) {
      PushInT1(slot);
    } else {
      slots.push_back(slot);
    }
  }
}

void SequenceCache::Impl::FreePagesOf(std::span<const TableEdit> tables) {
  for (const TableEdit& table : tables) {
    freed = table.freed;
    FreePages(table.group_table);
  }
  EndFreePages();
}

namespace {

// Rows of T0 that only a closed device reaches, packed on the host while they are edited there.
class CarriedRows {
 public:
  CarriedRows(Device* device, size_t stride) : device_(device), stride_(stride) {}
  // All for one kind of access.
  void Add(const RowAddress& row, TableEdit::Access access) {
    on_device_.insert(on_device_.end(), {row.key, row.value});
    access_ = access;
  }
  // Returns the address of the row that was added at `index`.
  [[nodiscard]] RowAddress OnHost(size_t index) const {
    std::byte* const key = packed_ + 2 * index * stride_;
    return {.key = key, .value = key + stride_};
  }
  // Before the rows are edited, and after it.
  Status Fetch() {
    if (on_device_.empty()) return OkStatus();
    const size_t num_bytes = on_device_.size() * stride_;
    packed_ = device_->Staging(num_bytes);
    if (packed_ == nullptr) {
      unpinned_.resize(num_bytes);
      packed_ = unpinned_.data();
    }
    if (access_ != TableEdit::Access::kRead) return OkStatus();
    return device_->ReadRows(on_device_, stride_, packed_);
  }
  Status Store() const {
    if (on_device_.empty() || access_ != TableEdit::Access::kWrite) return OkStatus();
    return device_->WriteRows(on_device_, stride_, packed_);
  }

 private:
  Device* const device_;
  const size_t stride_;
  TableEdit::Access access_ = TableEdit::Access::kRead;
  std::vector<std::byte*> on_device_;
  std::byte* packed_ = nullptr;
  std::vector<std::byte> unpinned_;  // where no pinned memory is to be had
};

}  // namespace

// Calls table.edit(stream, addresses) for the tables' streams, addresses[i] being where the row of
// slots[i] is read or written meanwhile. Rows of T0 on a closed device are carried to the host, or
// from it, a few MiB at once.
Status SequenceCache::Impl::EditRows(std::span<const TableEdit> tables) {
  std::vector<StreamEdit> edits;
  size_t num_in_t0 = 0;
  for (const TableEdit& table : tables) {
    for (const int group : table.group_table->groups) {
      for (const Stream& stream : StreamsOf(group)) {
        edits.push_back({.table = &table, .stream = &stream, .first_in_t0 = num_in_t0});
        num_in_t0 += table.NumInT0();
        if (!device->IsClosed() || num_in_t0 * RowBytes() < kEditBytes) continue;
        EBB_RETURN_IF_ERROR(EditStreams(edits));
        edits.clear();
        num_in_t0 = 0;
      }
    }
  }
  return EditStreams(edits);
}

// Streams that need no rows of T1 do not wait for it, nor fail with it.
Status SequenceCache::Impl::EditStreams(std::span<const StreamEdit> edits) {
  CarriedRows carried(device, format.RowStride());
  if (device->IsClosed()) {
    for (const StreamEdit& edit : edits) {
      const auto add = [&](Slot slot) {
        carried.Add(RowAt(*edit.stream, slot), edit.table->t0_access);
      };
      edit.table->ForEachSlot(add, [] {});
    }
    EBB_RETURN_IF_ERROR(carried.Fetch());
  }
  std::vector<RowAddress> addresses;
  const auto call = [&](const StreamEdit& edit, std::span<const RowAddress> in_t1) {
    const TableEdit& table = *edit.table;
    addresses.clear();
    size_t next_in_t0 = edit.first_in_t0, next_in_t1 = 0;
    table.ForEachSlot(
        [&](Slot slot) {
          addresses.push_back(device->IsClosed() ? carried.OnHost(next_in_t0++)
                                                 : RowAt(*edit.stream, slot));
        },
        [&] { addresses.push_back(in_t1[next_in_t1++]); });
    table.edit(*edit.stream, addresses);
  };
  std::vector<TierRows::Edit> edits_of_t1;
  std::vector<const StreamEdit*> streams_of_t1;
  for (const StreamEdit& edit : edits) {
    if (edit.table->t1_places.empty()) {
      call(edit, {});
    } else {
      edits_of_t1.push_back({.rows = &edit.table->t1_rows, .pages = edit.stream->refs});
      streams_of_t1.push_back(&edit);
    }
  }
  if (!edits_of_t1.empty()) {
    EBB_RETURN_IF_ERROR(stores.t1->EditRows(
        edits_of_t1,
        [&](size_t i, std::span<const RowAddress> in_t1) { call(*streams_of_t1[i], in_t1); }));
  }
  return carried.Store();
}

}  // namespace ebb
