// PageLoader loads pages of T1 into the memory that a step reads: from a file into the host's
// memory, or from a file or pinned host memory into a device's memory.
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

// LoadedMemory owns memory for loaded pages, of the host or of a device.
class LoadedMemory {
 public:
  LoadedMemory() = default;  // owns nothing
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
  // Returns a number greater than every page's id.
  [[nodiscard]] virtual size_t page_end() const = 0;
  // Allocates memory for loaded pages, of the host or of the device. Errors: OutOfMemory.
  Result<LoadedMemory> Allocate(size_t num_bytes);
  // Reserves lists for batches of up to `num_pages` pages. May throw std::bad_alloc.
  virtual void Reserve(size_t num_pages) = 0;
  // Reserves the host memory that batches of up to `num_bytes` bytes pass through. Without it a
  // batch allocates memory itself, which may fail in the middle of a step. Errors: OutOfMemory.
  virtual Status ReserveMemory(size_t /*num_bytes*/) { return OkStatus(); }
  // Batch identifies pages that are being loaded, from Start() to Wait(). At most kMostBatches
  // batches may be under way at a time.
  struct Batch {
    uint64_t number = 0;
  };
  static constexpr size_t kMostBatches = 3;
  // Begins to load pages, once the device has done the work before `last_read`. The pages of a file
  // are read in ascending order, so that adjacent ones become one request. Errors, after which
  // nothing was started: OutOfMemory; those of the file. REQUIRES: at most as many pages as
  // Reserve() was called for.
  virtual Result<Batch> Start(std::span<const PageIo> pages, const DeviceEvent& last_read) = 0;
  // Makes the batch's pages available to work that starts after this call. Must be called once for
  // each batch. Errors: those of the file or of the device.
  virtual Status Wait(const Batch& batch) = 0;
  // Ends all batches that were not waited for; their pages are of no use to any work. When it
  // returns, no batch accesses memory any more. Errors: those of a device's copies.
  virtual Status Finish() = 0;
  // Returns an event after the work launched so far, which may still read loaded pages. Start()
  // takes it before it overwrites them.
  [[nodiscard]] DeviceEvent RecordReads() const {
    return device_ == nullptr ? DeviceEvent() : device_->Record(DeviceQueue::kCompute);
  }
  // Frees the host memory that batches have passed through. REQUIRES: Finish() was called.
  virtual void ReleaseMemory() {}
  [[nodiscard]] virtual size_t memory_bytes() const { return 0; }

 protected:
  explicit PageLoader(Device* device) : device_(device) {}

  Device* const device_;  // null: loads into the host's memory
};

// FilePageLoader loads pages of a file into the host's memory. REQUIRES: file and edits outlive
// this.
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
  std::vector<uint64_t> reading_;  // numbers of the batches under way
};

// ArenaPageLoader copies pages of an arena in pinned host memory to a device's memory. REQUIRES:
// both outlive this.
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

// FileDevicePageLoader loads pages of a file into a device's memory through buffers on the host.
// REQUIRES: file, edits and device outlive this.
class FileDevicePageLoader final : public PageLoader {
 public:
  // Returns the bytes of the host buffers for batches of `batch_bytes` bytes.
  [[nodiscard]] static uint64_t BytesFor(uint64_t batch_bytes) {
    return kMostBatches * batch_bytes;
  }

  // Makes a loader with buffers for `num_batches` batches. REQUIRES: no more are under way at a
  // time.
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
  // Slot is a buffer for one batch under way: first the file is read into it, then a copy to the
  // device runs. The slot serves another batch when the copy has ended.
  struct Slot {
    IoMemory memory;
    std::vector<PageIo> reads;
    std::vector<CopyPart> copies;
    std::optional<PageFile::Ticket> reading;
    DeviceEvent last_read, copied;

    // Replaces `memory` if it is smaller than `num_bytes` bytes. REQUIRES: the slot has no batch
    // under way.
    Status Grow(size_t num_bytes);
  };

  PageFile* const file_;
  T1Edits* const edits_;
  std::vector<Slot> slots_;
  uint64_t next_ = 0;  // number of the next batch
};

}  // namespace ebb

#endif  // EBB_ROWS_PAGE_LOADER_H_
