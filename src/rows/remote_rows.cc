#include "src/rows/remote_rows.h"

#include <memory>

namespace ebb {

RemoteRows::RemoteRows(Arena* arena, Device* device, const PageFormat& format)
    : InArena(arena, device),
      format_(format),
      stage_(std::make_unique<ArenaStageReader>(device, arena)) {}

Status RemoteRows::EditRows(std::span<const Edit> edits, const EditFunction& edit) {
  EditInArena(edits, *arena_, format_, edit);
  return OkStatus();
}

Status RemoteRows::MoveRows(std::span<const std::span<const SlotMove>> moves,
                            std::span<const std::span<const PageRef>> pages) {
  MoveInArena(moves, pages, *arena_, format_);
  return OkStatus();
}

}  // namespace ebb
