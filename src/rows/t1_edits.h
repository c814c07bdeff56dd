// T1Edits reads pages of T1's file, lets the caller edit them and writes them back. Batches of
// pages fill two buffers in turn: while one batch is edited, the next is read and the one before is
// written. The last batches are written while the next step runs; reads of their pages wait for
// these writes first.
//
// A write that fails loses nothing: the pages stay in their buffer, and any use of them in the
// file, or of the buffer, tries again first and returns the disk's error.
//
// Thread safety: one caller at a time.
#ifndef EBB_ROWS_T1_EDITS_H_
#define EBB_ROWS_T1_EDITS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"

namespace ebb {

class T1Edits {
 public:
  // Returns the bytes of the buffers for edits that touch pages of `all_bytes` bytes.
  [[nodiscard]] static uint64_t BytesFor(uint64_t all_bytes, uint64_t max_bytes) {
    return IoMemory::BytesFor(std::min(all_bytes, max_bytes));
  }

  // Edits pages of `file` in buffers of `max_bytes` in all. If a unit is larger, one buffer holds
  // its pages.
  T1Edits(PageFile* file, size_t max_bytes) : file_(file), max_bytes_(max_bytes) {}
  // Waits for reads and writes under way.
  ~T1Edits();
  T1Edits(const T1Edits&) = delete;
  T1Edits& operator=(const T1Edits&) = delete;

  enum class Access { kRead, kWrite, kReadAndWrite };
  struct Page {
    uint32_t file_page = 0;
    Access access = Access::kRead;  // kWrite: the contents of the file are not wanted
    std::byte** address = nullptr;  // set while its unit is edited, null afterwards
  };
  using Unit = std::vector<Page>;  // pages that must be in memory together

  // Takes the memory that Run() needs for such units, so that it need not fail for lack of it: of
  // the largest unit, and of all together. OutOfMemory when the system refuses it.
  Status Reserve(size_t largest_bytes, size_t all_bytes);
  // Calls edit(i) for every unit, in order. After an error some units were not edited; what was
  // edited is written. REQUIRES: no page is named twice.
  Status Run(std::span<const Unit> units, const std::function<void(size_t)>& edit);

  // Repeats the writes that are known to have failed, and returns their error if they fail again.
  // Does not wait for writes under way.
  Status Check();
  // Returns once these pages, or all that were edited, are in the file.
  Status WaitFor(std::span<const PageIo> pages);
  Status WaitForWrites();
  // Waits for writes of a page that is about to be freed, and drops pending ones.
  void Forget(uint32_t file_page);

  [[nodiscard]] size_t memory_bytes() const;
  // Returns how long WaitFor() and WaitForWrites() took since the last call of this function.
  [[nodiscard]] double TakeWaitSeconds();

 private:
  struct Buffer {
    IoMemory memory;
    std::optional<PageFile::Ticket> reading;
    std::vector<PageIo> to_write;  // once they are edited
    // Lists the edited pages, ascending. With `writing` they are being written; without, the disk
    // refused them.
    std::vector<PageIo> written;
    std::optional<PageFile::Ticket> writing;
  };
  struct Batch {
    size_t first = 0, end = 0;  // units
    size_t num_bytes = 0;
  };

  [[nodiscard]] std::vector<Batch> Divide(std::span<const Unit> units) const;
  [[nodiscard]] bool IsLong(size_t num_bytes) const { return num_bytes > max_bytes_ / 2; }
  Status Start(std::span<const Unit> units, size_t num_bytes, Buffer* buffer);
  Status Finish(const Batch& batch, const std::function<void(size_t)>& edit, Buffer* buffer);
  Status Write(Buffer* buffer);
  Status WaitForBuffer(Buffer* buffer);
  Status WaitForBuffers();
  Status WaitForBuffersWith(std::span<const PageIo> pages);

  PageFile* const file_;
  const size_t max_bytes_;
  std::array<Buffer, 2> buffers_;
  double wait_seconds_ = 0;
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_EDITS_H_
