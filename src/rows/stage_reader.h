// Brings the T1 pages of a layer into a buffer for T1Stage: a file's reads, or a device's copies. A
// buffer holds the pages of one layer at a time.
//
// Thread safety: one caller at a time.
#ifndef EBB_ROWS_STAGE_READER_H_
#define EBB_ROWS_STAGE_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/device/device.h"
#include "src/device/device_block.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/rows/arena.h"
#include "src/rows/t1_edits.h"

namespace ebb {

// A page of a layer: which one it is, and where its address in the buffer is wanted.
struct StagedPage {
  PageId page = kNoPage;
  std::byte** address = nullptr;
};

inline constexpr int kStageBuffers = 2;

class StageReader {
 public:
  virtual ~StageReader() = default;
  [[nodiscard]] virtual size_t page_bytes() const = 0;
  // Room for so many bytes; a buffer that grows loses its contents. OutOfMemory.
  virtual Status Grow(int buffer, size_t num_bytes) = 0;
  [[nodiscard]] virtual std::byte* memory(int buffer) const = 0;
  [[nodiscard]] virtual size_t memory_bytes(int buffer) const = 0;
  // Begins to bring the pages of a layer to their addresses.
  virtual Status Start(int buffer, std::span<const StagedPage> pages) = 0;
  // Work that starts from now on finds them there. OK at once when nothing was begun.
  virtual Status Wait(int buffer) = 0;
  // Work launched so far is the last to read the buffer.
  virtual void Release(int buffer) = 0;
  // Waits for what was begun, whose pages may change then.
  virtual void Drop(int buffer) = 0;
};

// Pages of a file, into huge pages of the host's memory; those that were edited once they are
// there.
class FileStageReader final : public StageReader {
 public:
  FileStageReader(PageFile* file, T1Edits* edits) : file_(file), edits_(edits) {}
  [[nodiscard]] size_t page_bytes() const override { return file_->page_bytes(); }
  Status Grow(int buffer, size_t num_bytes) override;
  [[nodiscard]] std::byte* memory(int buffer) const override { return memory_[buffer].data(); }
  [[nodiscard]] size_t memory_bytes(int buffer) const override { return memory_[buffer].size(); }
  Status Start(int buffer, std::span<const StagedPage> pages) override;
  // Start(), into any memory of the host.
  Status StartReads(int buffer, std::span<const PageIo> requests);
  Status Wait(int buffer) override;
  void Release(int) override {}
  void Drop(int buffer) override { (void)Wait(buffer); }

 private:
  PageFile* const file_;
  T1Edits* const edits_;
  std::array<IoMemory, kStageBuffers> memory_;
  std::array<std::optional<PageFile::Ticket>, kStageBuffers> tickets_;
  std::vector<PageIo> requests_;
};

// Buffers in a device's memory, and copies into them.
class DeviceStageReader : public StageReader {
 public:
  Status Grow(int buffer, size_t num_bytes) override;
  [[nodiscard]] std::byte* memory(int buffer) const override { return memory_[buffer].data(); }
  [[nodiscard]] size_t memory_bytes(int buffer) const override { return memory_[buffer].size(); }
  void Release(int buffer) override { released_[buffer] = device_->Record(DeviceQueue::kCompute); }

 protected:
  explicit DeviceStageReader(Device* device) : device_(device) {}
  // Begins to copy a layer's pages once what was launched before Release() has read the buffer.
  Status StartCopy(int buffer, std::span<const CopyPart> pages);
  // Work that starts from now on finds them there. REQUIRES: StartCopy() was called.
  Status UseCopy(int buffer) { return device_->QueueWait(DeviceQueue::kCompute, *copied_[buffer]); }
  // The host waits for the copy, if there is one.
  Status EndCopy(int buffer);

  std::array<std::optional<DeviceEvent>, kStageBuffers> copied_;

 private:
  Device* const device_;
  std::array<DeviceBlock, kStageBuffers> memory_;
  std::array<DeviceEvent, kStageBuffers> released_;  // the last that read the buffer
};

// Pages of an arena in the host's memory, into a device's: a layer in one copy.
class ArenaStageReader final : public DeviceStageReader {
 public:
  ArenaStageReader(Device* device, const Arena* arena) : DeviceStageReader(device), arena_(arena) {}
  [[nodiscard]] size_t page_bytes() const override { return arena_->page_bytes(); }
  Status Start(int buffer, std::span<const StagedPage> pages) override;
  Status Wait(int buffer) override;
  void Drop(int buffer) override { (void)EndCopy(buffer); }

 private:
  const Arena* const arena_;
  std::vector<CopyPart> parts_;
};

// Pages of a file, into a device's memory: read into the host's ahead of the layer, copied from
// there once a step asks for it.
class FileDeviceStageReader final : public DeviceStageReader {
 public:
  FileDeviceStageReader(PageFile* file, T1Edits* edits, Device* device)
      : DeviceStageReader(device), host_(file, edits) {}
  [[nodiscard]] size_t page_bytes() const override { return host_.page_bytes(); }
  Status Grow(int buffer, size_t num_bytes) override;
  Status Start(int buffer, std::span<const StagedPage> pages) override;
  Status Wait(int buffer) override;
  void Drop(int buffer) override;

 private:
  FileStageReader host_;
  std::vector<PageIo> requests_;
  std::array<std::vector<CopyPart>, kStageBuffers> parts_;  // read, and not copied yet
};

}  // namespace ebb

#endif  // EBB_ROWS_STAGE_READER_H_
