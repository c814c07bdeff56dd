#include "src/rows/memory_rows.h"

#include <algorithm>

#include "src/rows/row_address.h"

namespace ebb {
namespace {

// Returns whether the arena is T1 in pinned host memory and the device cannot read it, so that
// steps read copies of the rows.
bool AreBeyond(const Device& device, const Arena& arena) {
  return device.IsClosed() && arena.memory() == MemoryKind::kPinned;
}

std::unique_ptr<T1Stage> StageBeyond(Device* device, const Arena* arena) {
  if (!AreBeyond(*device, *arena)) return nullptr;
  return std::make_unique<T1Stage>(std::make_unique<ArenaPageLoader>(arena, device));
}

std::unique_ptr<T1PageCache> CacheBeyond(Device* device, const Arena* arena) {
  if (!AreBeyond(*device, *arena)) return nullptr;
  return std::make_unique<T1PageCache>(std::make_unique<ArenaPageLoader>(arena, device));
}

}  // namespace

MemoryRows::MemoryRows(Arena* arena, Device* device, const PageFormat& format)
    : InArena(arena, device),
      format_(format),
      stage_(StageBeyond(device, arena)),
      page_cache_(CacheBeyond(device, arena)) {}

Status MemoryRows::Visit(std::span<const PageId> pages, Access access,
                         const std::function<Status(size_t, std::byte*)>& visit) {
  if (access == Access::kWrite) std::ranges::for_each(pages, [&](PageId page) { Drop(page); });
  return InArena::Visit(pages, access, visit);
}

Status MemoryRows::Copy(std::span<const PageCopy> pages) {
  for (const PageCopy& copy : pages) Drop(copy.to);
  return InArena::Copy(pages);
}

void MemoryRows::Release(PageRef page) {
  Drop(page.id());
  InArena::Release(page);
}

Status MemoryRows::EditRows(std::span<const Edit> edits, const EditFunction& edit) {
  for (const Edit& one : edits) {
    if (page_cache_ == nullptr || one.rows->access == Access::kRead) continue;
    for (const Slot slot : one.rows->slots) Drop(one.pages[slot.page()].id());
  }
  EditInArena(edits, *arena_, format_, edit);
  return OkStatus();
}

Status MemoryRows::MoveRows(std::span<const std::span<const SlotMove>> moves,
                            std::span<const std::span<const PageRef>> pages) {
  for (size_t i = 0; page_cache_ != nullptr && i < moves.size(); ++i) {
    for (const SlotMove& move : moves[i]) Drop(pages[i][move.to.page()].id());
  }
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
