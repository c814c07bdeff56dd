// Rows in an arena: the device's, which a step attends to where they lie; or the host's beyond a
// device, which a step has copied to the device layer by layer (t1_stage.h), or attends to on the
// host.
#ifndef EBB_ROWS_MEMORY_ROWS_H_
#define EBB_ROWS_MEMORY_ROWS_H_

#include <memory>
#include <vector>

#include "src/rows/arena_pages.h"
#include "src/rows/t1_stage.h"

namespace ebb {

class MemoryRows final : public InArena<TierRows> {
 public:
  MemoryRows(Arena* arena, Device* device, const PageFormat& format);

  Status ReserveEdits(const EditSize& /*size*/) override { return OkStatus(); }
  Status EditRows(std::span<const Edit> edits, const EditFunction& edit) override;
  Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                  std::span<const std::span<const PageRef>> pages) override;
  [[nodiscard]] Status Check() override { return OkStatus(); }
  Status WaitForWrites() override { return OkStatus(); }
  [[nodiscard]] double TakeWaitSeconds() override { return 0; }
  [[nodiscard]] T1Stage* stage() override { return stage_.get(); }
  [[nodiscard]] bool MayStay() const override { return true; }
  [[nodiscard]] size_t buffer_bytes() const override {
    return stage_ == nullptr ? 0 : stage_->memory_bytes();
  }
  // Whether rows in the order of their positions are read faster: by a processor.
  [[nodiscard]] bool GainsByOrder() const { return !device_->IsClosed(); }

 private:
  const PageFormat format_;
  const std::unique_ptr<T1Stage> stage_;  // null: rows are attended to where they lie
};

}  // namespace ebb

#endif  // EBB_ROWS_MEMORY_ROWS_H_
