// PageLoader loads pages of T1 into the memory that a step reads: pages of a file into the host's
// memory, or pages of a file or of the host's memory into a device's.
//
// Thread safety: one caller at a time.
#ifndef EBB_ROWS_PAGE_LOADER_H_
#define EBB_ROWS_PAGE_LOADER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ebb/status.h"
#include "src/device/device.h"
#include "src/device/device_block.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/rows/arena.h"
#include "src/rows/t1_edits.h"

namespace ebb {

// LoadedMemory is memory that pages are loaded into, the host's or a device's.
class LoadedMemory {
 public:
  LoadedMemory() = default;  // empty
  explicit LoadedMemory(IoMemory memory) : host_(std::move(memory)) {}
  explicit LoadedMemory(DeviceBlock memory) : device_(std::move(memory)) {}
  [[nodiscard]] std::byte* data() const {
    return device_.data() != nullptr ? device_.data() : host_.data();
  }
  [[nodiscard]] size_t size() const { return host_.size() + device_.size(); }

 private:
  IoMemory host_;
  DeviceBlock device_;
};

class PageLoader {
 public:
  virtual ~PageLoader() = default;
  PageLoader(const PageLoader&) = delete;
  PageLoader& operator=(const PageLoader&) = delete;

  [[nodiscard]] virtual size_t page_bytes() const = 0;
  // Returns a number above the id of every page.
  [[nodiscard]] virtual size_t page_end() const = 0;
  // Allocates memory of the kind that pages are loaded into. Errors: OutOfMemory.
  Result<LoadedMemory> Allocate(size_t num_bytes);
  // Makes room in lists for batches of so many pages. May throw std::bad_alloc.
  virtual void Reserve(size_t num_pages) = 0;
  // Reserves the memory that batches of so many bytes take on the host. A batch without it takes
  // its own, which may fail in the middle of a step. Errors: OutOfMemory.
  virtual Status ReserveMemory(size_t /*num_bytes*/) { return OkStatus(); }
  // Batch is a batch of pages, from Start() to Wait(). At most kMostBatches are under way at a
  // time.
  struct Batch {
    uint64_t number = 0;
  };
  static constexpr size_t kMostBatches = 3;
  // Begins to load pages, once the work before `last_read` has ended on the device; those of a file
  // in ascending order, so that neighbours are one request. Errors: OutOfMemory, those of the file,
  // with nothing started. REQUIRES: at most as many as Reserve() made room for.
  virtual Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& last_read) = 0;
  // Makes work that starts from now on find the pages of the batch. Called once for each batch.
  // Errors: those of the file or of the device.
  virtual Status Wait(const Batch& batch) = 0;
  // Ends the batches that were not waited for, of which no work needs a page, and returns once
  // none touches any memory. Errors: those of a device's copies.
  virtual Status Finish() = 0;
  // Returns the end of the work that was launched so far, which may read the pages loaded so far.
  [[nodiscard]] DeviceEvent RecordReads() const {
    return device_ == nullptr ? DeviceEvent() : device_->Record(DeviceQueue::kCompute);
  }
  // Frees the memory that batches took on the host. REQUIRES: Finish() was called.
  virtual void ReleaseMemory() {}
  [[nodiscard]] virtual size_t memory_bytes() const { return 0; }

 protected:
  explicit PageLoader(Device* device) : device_(device) {}

  Device* const device_;  // null: pages are loaded into the host's memory
};

// FilePageLoader loads pages of a file into the host's memory. REQUIRES: file and edits outlive it.
class FilePageLoader final : public PageLoader {
 public:
  FilePageLoader(PageFile* file, T1Edits* edits)
      : PageLoader(nullptr), file_(file), edits_(edits) {}
  [[nodiscard]] size_t page_bytes() const override { return file_->page_bytes(); }
  [[nodiscard]] size_t page_end() const override { return file_->page_end(); }
  void Reserve(size_t num_pages) override;
  Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& last_read) override;
  Status Wait(const Batch& batch) override;
  Status Finish() override;

 private:
  PageFile* const file_;
  T1Edits* const edits_;
  std::vector<uint64_t> reading_;  // numbers of batches
};

// ArenaPageLoader copies pages of an arena in pinned memory to a device's memory. REQUIRES: both
// outlive it.
class ArenaPageLoader final : public PageLoader {
 public:
  ArenaPageLoader(const Arena* arena, Device* device) : PageLoader(device), arena_(arena) {}
  [[nodiscard]] size_t page_bytes() const override { return arena_->page_bytes(); }
  [[nodiscard]] size_t page_end() const override { return arena_->page_end(); }
  void Reserve(size_t num_pages) override { parts_.reserve(num_pages); }
  Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& last_read) override;
  Status Wait(const Batch& batch) override;
  Status Finish() override { return device_->Wait(last_copy_); }

 private:
  const Arena* const arena_;
  std::vector<CopyPart> parts_;
  DeviceEvent last_copy_;
};

// FileDevicePageLoader loads pages of a file into a device's memory, through buffers on the host.
// REQUIRES: file, edits and device outlive it.
class FileDevicePageLoader final : public PageLoader {
 public:
  // Returns the bytes of the buffers on the host for batches of `batch_bytes` bytes.
  [[nodiscard]] static uint64_t BytesFor(uint64_t batch_bytes) {
    return kMostBatches * batch_bytes;
  }

  // REQUIRES: at most `num_batches` batches are under way at a time.
  FileDevicePageLoader(PageFile* file, T1Edits* edits, Device* device, size_t num_batches)
      : PageLoader(device), file_(file), edits_(edits), slots_(num_batches) {}
  [[nodiscard]] size_t page_bytes() const override { return file_->page_bytes(); }
  [[nodiscard]] size_t page_end() const override { return file_->page_end(); }
  void Reserve(size_t num_pages) override;
  Status ReserveMemory(size_t num_bytes) override;
  Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& last_read) override;
  Status Wait(const Batch& batch) override;
  Status Finish() override;
  void ReleaseMemory() override;
  [[nodiscard]] size_t memory_bytes() const override;

 private:
  // Slot holds a batch on its way: from Start() to Wait() the file is read, then a copy to the
  // device runs, which ends before the slot serves another batch.
  struct Slot {
    IoMemory memory;
    std::vector<PageIo> reads;
    std::vector<CopyPart> copies;
    std::optional<PageFile::Ticket> reading;
    DeviceEvent last_read, copied;

    // Replaces `memory` if it is smaller than `num_bytes`. REQUIRES: no batch is under way in the
    // slot.
    Status Grow(size_t num_bytes);
  };

  PageFile* const file_;
  T1Edits* const edits_;
  std::vector<Slot> slots_;
  uint64_t next_ = 0;  // batches that were started
};

}  // namespace ebb

#endif  // EBB_ROWS_PAGE_LOADER_H_
