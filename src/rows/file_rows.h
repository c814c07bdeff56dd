// FileRows holds the rows of T1 in a file. Between steps it reads and writes whole pages, in
// batches (t1_edits.h); for a step it loads pages layer by layer into the memory that the step
// reads, the host's or a device's (t1_stage.h).
#ifndef EBB_ROWS_FILE_ROWS_H_
#define EBB_ROWS_FILE_ROWS_H_

#include <memory>
#include <vector>

#include "src/device/device.h"
#include "src/io/page_file.h"
#include "src/rows/t1_edits.h"
#include "src/rows/t1_page_cache.h"
#include "src/rows/t1_stage.h"
#include "src/rows/tier_rows.h"

namespace ebb {

class FileRows final : public TierRows {
 public:
  // Holds rows in `file`, whose pages steps read in the memory of `device`. REQUIRES: both outlive
  // this.
  FileRows(PageFile* file, Device* device, const PageFormat& format);
  ~FileRows() override { EndReleases(); }

  void Share(PageId page) override { file_->Share(page); }
  [[nodiscard]] uint32_t num_holders(PageId page) const override {
    return file_->num_holders(page);
  }
  [[nodiscard]] std::byte* Address(PageId /*page*/) const override { return nullptr; }
  [[nodiscard]] uint64_t generation() const override { return 0; }
  Status Visit(std::span<const PageId> pages, Access access,
               const std::function<Status(size_t, std::byte*)>& visit) override;
  Status Copy(std::span<const PageCopy> pages) override;

  Status ReserveEdits(const EditSize& size) override;
  Status EditRows(std::span<const Edit> edits, const EditFunction& edit) override;
  Status MoveRows(std::span<const std::span<const SlotMove>> moves,
                  std::span<const std::span<const PageRef>> pages) override;
  [[nodiscard]] Status Check() override { return edits_.Check(); }
  Status WaitForWrites() override { return edits_.WaitForWrites(); }
  [[nodiscard]] double TakeWaitSeconds() override { return edits_.TakeWaitSeconds(); }
  [[nodiscard]] T1Stage* stage() override { return &stage_; }
  [[nodiscard]] T1PageCache* page_cache() override { return &page_cache_; }
  [[nodiscard]] bool MayStay() const override { return false; }
  [[nodiscard]] size_t buffer_bytes() const override {
    return edits_.memory_bytes() + stage_.memory_bytes() + page_cache_.memory_bytes();
  }

 private:
  Status Reserve(std::span<const size_t> pages_of_layers, Reserved* reserved) override;
  void EndReservation(Reserved* reserved) override;
  PageId Take(int layer, Reserved* reserved) override;
  void ReserveReleases(size_t num_pages) override { released_.reserve(num_pages); }
  // Waits until a pending write of the page has ended, then releases the page.
  void Release(PageRef page) override;
  void EndReleases() override;
  Status Read(std::span<const PageIo> pages);
  Status Write(std::span<const PageIo> pages);
  PageFile* const file_;
  const PageFormat format_;
  std::vector<uint32_t> released_;
  T1Edits edits_;
  T1Stage stage_;
  T1PageCache page_cache_;
};

}  // namespace ebb

#endif  // EBB_ROWS_FILE_ROWS_H_
