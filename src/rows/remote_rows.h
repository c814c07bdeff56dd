// Rows in the host's memory beyond a device: a step has them copied to the device layer by layer
// (t1_stage.h), or attends to them on the host where they lie. Between steps they travel packed, a
// batch of several streams in one copy.
#ifndef EBB_ROWS_REMOTE_ROWS_H_
#define EBB_ROWS_REMOTE_ROWS_H_

#include "src/rows/arena_pages.h"
#include "src/rows/row_carrier.h"
#include "src/rows/t1_stage.h"

namespace ebb {

class RemoteRows final : public InArena<TierRows> {
 public:
  // arena: of the host's memory. All outlive this.
  RemoteRows(Arena* arena, Device* device, RowCarrier* carrier, const PageFormat& format);

  Status ReserveEdits(const EditSize& size) override;
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
  [[nodiscard]] size_t RowBytes() const { return 2 * format_.RowStride(); }
  // How many of the edits go in one copy.
  [[nodiscard]] size_t BatchSize(std::span<const Edit> edits) const;
  Status EditBatch(std::span<const Edit> edits, size_t first, const EditFunction& edit);

  RowCarrier* const carrier_;
  const PageFormat format_;
  T1Stage stage_;
};

}  // namespace ebb

#endif  // EBB_ROWS_REMOTE_ROWS_H_
