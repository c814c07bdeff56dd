#include "src/kv/row_editor.h"

#include <algorithm>

namespace ebb {

void TableEdit::AddInT0(std::span<const Slot> slots, Access access) {
  slots_.insert(slots_.end(), slots.begin(), slots.end());
  t0_access_ = access;
}

void TableEdit::PushInT1(Slot slot) {
  t1_places_.push_back(static_cast<uint32_t>(slots_.size()));
  t1_rows_.slots.push_back(slot);
  slots_.push_back(slot);
}

void TableEdit::AddInT1(std::span<const Slot> slots, Access access,
                        std::span<const TablePage> fresh) {
  for (const Slot slot : slots) PushInT1(slot);
  t1_rows_.access = access;
  for (const TablePage& page : fresh) t1_rows_.fresh.push_back(page.index);
  std::ranges::sort(t1_rows_.fresh);
}

void TableEdit::AddToRead(std::span<const Slot> slots) {
  t1_rows_.access = t0_access_ = Access::kRead;
  for (const Slot slot : slots) {
    if (table_->rows.TierOf(slot) == Tier::kT1) {
      PushInT1(slot);
    } else {
      slots_.push_back(slot);
    }
  }
}

namespace {

// CarriedRows copies rows of T0 from a closed device, whose memory the host cannot address, to the
// host for an edit, and back after it.
class CarriedRows {
 public:
  CarriedRows(Device* device, const PageFormat& format) : device_(device), format_(format) {}
  // Adds a row. REQUIRES: all rows have the same access.
  void Add(const RowAddress& row, TableEdit::Access access) {
    on_device_.push_back(row.key);
    if (format_.has_values) on_device_.push_back(row.value);
    access_ = access;
  }
  // Returns the address of the row that was added at `index`.
  [[nodiscard]] RowAddress OnHost(size_t index) const {
    std::byte* const key = packed_ + index * format_.RowBytes();
    return {.key = key, .value = key + format_.PackedValueOffset()};
  }
  // Fetch() copies rows to the host before an edit reads them, and Store() copies edited rows back.
  Status Fetch() {
    if (on_device_.empty()) return OkStatus();
    const size_t num_bytes = on_device_.size() * format_.RowStride();
    packed_ = device_->Staging(num_bytes);
    if (packed_ == nullptr) {
      unpinned_.resize(num_bytes);
      packed_ = unpinned_.data();
    }
    if (access_ != TableEdit::Access::kRead) return OkStatus();
    return device_->ReadRows(on_device_, format_.RowStride(), packed_);
  }
  Status Store() const {
    if (on_device_.empty() || access_ != TableEdit::Access::kWrite) return OkStatus();
    return device_->WriteRows(on_device_, format_.RowStride(), packed_);
  }

 private:
  Device* const device_;
  const PageFormat format_;
  TableEdit::Access access_ = TableEdit::Access::kRead;
  std::vector<std::byte*> on_device_;
  std::byte* packed_ = nullptr;
  std::vector<std::byte> unpinned_;  // used if the device has no pinned memory left
};

}  // namespace

Status RowEditor::Run(std::span<const TableEdit> edits) const {
  std::vector<StreamEdit> of_streams;
  size_t num_in_t0 = 0;
  for (const TableEdit& edit : edits) {
    for (const int group : edit.table().groups) {
      for (const Stream& stream : pages_.StreamsOf(group)) {
        of_streams.push_back({.edit = &edit, .stream = &stream, .first_in_t0 = num_in_t0});
        num_in_t0 += edit.NumInT0();
        if (!device_->IsClosed() || num_in_t0 * layout_.RowBytes() < kEditBytes) continue;
        EBB_RETURN_IF_ERROR(RunOnStreams(of_streams));
        of_streams.clear();
        num_in_t0 = 0;
      }
    }
  }
  return RunOnStreams(of_streams);
}

// Runs edits without rows of T1 first, so that they neither wait for T1 nor fail with it.
Status RowEditor::RunOnStreams(std::span<const StreamEdit> edits) const {
  CarriedRows carried(device_, layout_.format());
  if (device_->IsClosed()) {
    for (const StreamEdit& of : edits) {
      const auto add = [&](Slot slot) {
        carried.Add(pages_.RowAt(*of.stream, slot), of.edit->t0_access());
      };
      of.edit->ForEachSlot(add, [] {});
    }
    EBB_RETURN_IF_ERROR(carried.Fetch());
  }
  std::vector<RowAddress> addresses;
  const auto run = [&](const StreamEdit& of, std::span<const RowAddress> in_t1) {
    addresses.clear();
    size_t next_in_t0 = of.first_in_t0, next_in_t1 = 0;
    of.edit->ForEachSlot(
        [&](Slot slot) {
          addresses.push_back(device_->IsClosed() ? carried.OnHost(next_in_t0++)
                                                  : pages_.RowAt(*of.stream, slot));
        },
        [&] { addresses.push_back(in_t1[next_in_t1++]); });
    of.edit->Run(*of.stream, addresses);
  };
  std::vector<TierRows::Edit> edits_of_t1;
  std::vector<const StreamEdit*> streams_of_t1;
  for (const StreamEdit& of : edits) {
    if (const TierRows::Rows* in_t1 = of.edit->InT1()) {
      edits_of_t1.push_back({.rows = in_t1, .pages = of.stream->refs});
      streams_of_t1.push_back(&of);
    } else {
      run(of, {});
    }
  }
  if (!edits_of_t1.empty()) {
    EBB_RETURN_IF_ERROR(stores_.t1->EditRows(
        edits_of_t1,
        [&](size_t i, std::span<const RowAddress> in_t1) { run(*streams_of_t1[i], in_t1); }));
  }
  return carried.Store();
}

void AddEditSize(const CacheLayout& layout, const GroupTable& table, size_t new_pages,
                 TierRows::EditSize* size) {
  const size_t pages = table.rows.num_pages(Tier::kT1) + new_pages;
  size->pages_of_stream = std::max(size->pages_of_stream, pages);
  size->pages += pages * layout.NumStreamsOf(table.groups);
}

}  // namespace ebb
