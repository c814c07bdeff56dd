// Rows in an arena that a step attends to where they lie.
#ifndef EBB_ROWS_MEMORY_ROWS_H_
#define EBB_ROWS_MEMORY_ROWS_H_

#include <vector>

#include "src/rows/arena_pages.h"

namespace ebb {

class MemoryRows final : public InArena<TierRows> {
 public:
  MemoryRows(Arena* arena, Device* device, const PageFormat& format)
      : InArena(arena, device), format_(format) {}

  Status ReserveEdits(const EditSize& /*size*/) override { return OkStatus(); }
  Status EditRows(std::span<const Edit> edits, const EditFunction& edit) override;
  Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                  std::span<const std::span<const PageRef>> pages) override;
  [[nodiscard]] Status Check() override { return OkStatus(); }
  Status WaitForWrites() override { return OkStatus(); }
  [[nodiscard]] double TakeWaitSeconds() override { return 0; }
  [[nodiscard]] T1Stage* stage() override { return nullptr; }
  [[nodiscard]] bool MayStay() const override { return true; }
  [[nodiscard]] size_t buffer_bytes() const override { return 0; }
  // Whether rows in the order of their positions are read faster: by a processor.
  [[nodiscard]] bool GainsByOrder() const { return !device_->IsClosed(); }

 private:
  const PageFormat format_;
};

}  // namespace ebb

#endif  // EBB_ROWS_MEMORY_ROWS_H_
