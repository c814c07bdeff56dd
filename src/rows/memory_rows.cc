#include "src/rows/memory_rows.h"

#include "src/rows/row_address.h"

namespace ebb {
namespace {

std::unique_ptr<T1Stage> StageBeyond(Device* device, const Arena* arena) {
  if (!device->IsClosed() || arena->memory() != MemoryKind::kPinned) return nullptr;
  return std::make_unique<T1Stage>(std::make_unique<ArenaStageReader>(device, arena));
}

}  // namespace

MemoryRows::MemoryRows(Arena* arena, Device* device, const PageFormat& format)
    : InArena(arena, device), format_(format), stage_(StageBeyond(device, arena)) {}

Status MemoryRows::EditRows(std::span<const Edit> edits, const EditFunction& edit) {
  EditInArena(edits, *arena_, format_, edit);
  return OkStatus();
}

Status MemoryRows::MoveRows(std::span<const std::span<const SlotMove>> moves,
                            std::span<const std::span<const PageRef>> pages) {
  if (!IsClosed()) {
    MoveInArena(moves, pages, *arena_, format_);
    return OkStatus();
  }
  std::vector<CopyPart> parts;
  const size_t num_bytes = format_.RowStride();
  for (size_t i = 0; i < moves.size(); ++i) {
    for (const SlotMove& move : moves[i]) {
      const RowAddress from = AddressOf(move.from, pages[i], *arena_, format_);
      const RowAddress to = AddressOf(move.to, pages[i], *arena_, format_);
      parts.push_back({.from = from.key, .to = to.key, .num_bytes = num_bytes});
      parts.push_back({.from = from.value, .to = to.value, .num_bytes = num_bytes});
    }
  }
  return device_->CopyRows(parts);
}

}  // namespace ebb
