#include "src/rows/remote_rows.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "src/rows/row_address.h"

namespace ebb {

RemoteRows::RemoteRows(Arena* arena, Device* device, RowCarrier* carrier, const PageFormat& format)
    : InArena(arena, device),
      carrier_(carrier),
      format_(format),
      stage_(std::make_unique<ArenaStageReader>(device, arena)) {}

Status RemoteRows::ReserveEdits(const EditSize& size) {
  // A closed device's rows are reached otherwise.
  if (size.rows_of_stream == 0 || device_->IsClosed()) return OkStatus();
  return carrier_->Reserve(std::max(kEditBytes, size.rows_of_stream * RowBytes()));
}

size_t RemoteRows::BatchSize(std::span<const Edit> edits) const {
  const Rows* const rows = edits.front().rows;
  const size_t most =
      std::max<size_t>(kEditBytes / std::max<size_t>(rows->slots.size() * RowBytes(), 1), 1);
  size_t size = 1;
  while (size < std::min(most, edits.size()) && edits[size].rows == rows) ++size;
  return size;
}

Status RemoteRows::EditRows(std::span<const Edit> edits, const EditFunction& edit) {
  // The caller brings and takes a closed device's rows itself.
  if (device_->IsClosed()) {
    EditInArena(edits, *arena_, format_, edit);
    return OkStatus();
  }
  for (size_t first = 0; first < edits.size();) {
    const size_t size = BatchSize(edits.subspan(first));
    EBB_RETURN_IF_ERROR(EditBatch(edits.subspan(first, size), first, edit));
    first += size;
  }
  return OkStatus();
}

// first: the number of the first of them.
Status RemoteRows::EditBatch(std::span<const Edit> edits, size_t first, const EditFunction& edit) {
  const std::vector<Slot>& slots = edits.front().rows->slots;
  const bool is_read = edits.front().rows->access == Access::kRead;
  const size_t num_bytes = edits.size() * slots.size() * RowBytes();
  const auto packed = [&](std::byte* memory, size_t i, size_t row) -> RowAddress {
    std::byte* const key = memory + (i * slots.size() + row) * RowBytes();
    return {.key = key, .value = key + format_.RowStride()};
  };
  const auto for_each_row = [&](const auto& visit) {
    for (size_t i = 0; i < edits.size(); ++i) {
      for (size_t row = 0; row < slots.size(); ++row) {
        visit(AddressOf(slots[row], edits[i].pages, *arena_, format_),
              packed(carrier_->on_host(), i, row));
      }
    }
  };
  if (is_read && num_bytes > 0) {
    for_each_row([&](const RowAddress& row, const RowAddress& at) { CopyRow(row, at, format_); });
    EBB_RETURN_IF_ERROR(carrier_->ToDevice(num_bytes));
  }
  {
    const DeviceCall call(device_);
    std::vector<RowAddress> addresses(slots.size());
    for (size_t i = 0; i < edits.size(); ++i) {
      for (size_t row = 0; row < slots.size(); ++row) {
        addresses[row] = packed(carrier_->on_device(), i, row);
      }
      edit(first + i, addresses);
    }
  }
  if (is_read || num_bytes == 0) return OkStatus();
  EBB_RETURN_IF_ERROR(carrier_->ToHost(num_bytes));
  for_each_row([&](const RowAddress& row, const RowAddress& at) { CopyRow(at, row, format_); });
  return OkStatus();
}

Status RemoteRows::MoveRows(std::span<const std::span<const SlotMove>> moves,
                            std::span<const std::span<const PageRef>> pages) {
  MoveInArena(moves, pages, *arena_, format_);
  return OkStatus();
}

}  // namespace ebb
