// Rows in the host's memory beyond a device: a step has them copied to the device layer by layer
// (t1_stage.h), or attends to them on the host where they lie. Between steps they are edited there;
// who edits rows of the device too brings and takes those itself.
#ifndef EBB_ROWS_REMOTE_ROWS_H_
#define EBB_ROWS_REMOTE_ROWS_H_

#include "src/rows/arena_pages.h"
#include "src/rows/t1_stage.h"

namespace ebb {

class RemoteRows final : public InArena<TierRows> {
 public:
  // arena: of the host's memory. All outlive this.
  RemoteRows(Arena* arena, Device* device, const PageFormat& format);

  Status ReserveEdits(const EditSize&) override { return OkStatus(); }
  Status EditRows(std::span<const Edit> edits, const EditFunction& edit) override;
  Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                  std::span<const std::span<const PageRef>> pages) override;
  [[nodiscard]] Status Check() override { return OkStatus(); }
  Status WaitForWrites() override { return OkStatus(); }
  [[nodiscard]] double TakeWaitSeconds() override { return 0; }
  [[nodiscard]] T1Stage* stage() override { return &stage_; }
  [[nodiscard]] bool MayStay() const override { return true; }
  [[nodiscard]] size_t buffer_bytes() const override { return stage_.memory_bytes(); }

 private:
  const PageFormat format_;
  T1Stage stage_;
};

}  // namespace ebb

#endif  // EBB_ROWS_REMOTE_ROWS_H_
