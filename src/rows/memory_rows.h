// MemoryRows holds the rows of T0 or T1 in an arena. A step reads rows in the device's memory in
// place. Rows of T1 in the host's memory are copied to the device layer by layer (t1_stage.h), or
// the host attends to them.
#ifndef EBB_ROWS_MEMORY_ROWS_H_
#define EBB_ROWS_MEMORY_ROWS_H_

#include <memory>
#include <vector>

#include "src/rows/arena_pages.h"
#include "src/rows/t1_page_cache.h"
#include "src/rows/t1_stage.h"

namespace ebb {

class MemoryRows final : public InArena<TierRows> {
 public:
  MemoryRows(Arena* arena, Device* device, const PageFormat& format);

  Status Visit(std::span<const PageId> pages, Access access,
               const std::function<Status(size_t, std::byte*)>& visit) override;
  Status Copy(std::span<const PageCopy> pages) override;
  Status ReserveEdits(const EditSize& /*size*/) override { return OkStatus(); }
  Status EditRows(std::span<const Edit> edits, const EditFunction& edit) override;
  Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                  std::span<const std::span<const PageRef>> pages) override;
  [[nodiscard]] Status Check() override { return OkStatus(); }
  Status WaitForWrites() override { return OkStatus(); }
  [[nodiscard]] double TakeWaitSeconds() override { return 0; }
  [[nodiscard]] T1Stage* stage() override { return stage_.get(); }
  [[nodiscard]] T1PageCache* page_cache() override { return page_cache_.get(); }
  [[nodiscard]] bool MayStay() const override { return true; }
  [[nodiscard]] size_t buffer_bytes() const override {
    return stage_ == nullptr ? 0 : stage_->memory_bytes() + page_cache_->memory_bytes();
  }
  // Returns whether steps are faster if rows lie in order of position, as they are on the
  // processor.
  [[nodiscard]] bool GainsByOrder() const { return !device_->IsClosed(); }

 private:
  void Release(PageRef page) override;
  // Removes a page from the page cache, because its contents change.
  void Drop(PageId page) {
    if (page_cache_ != nullptr) page_cache_->Drop(page);
  }

  const PageFormat format_;
  // Load rows into the memory of the device; null if steps read the rows in place.
  const std::unique_ptr<T1Stage> stage_;
  const std::unique_ptr<T1PageCache> page_cache_;
};

}  // namespace ebb

#endif  // EBB_ROWS_MEMORY_ROWS_H_
