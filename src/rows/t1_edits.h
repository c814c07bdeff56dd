// T1Edits reads pages of T1's file, lets the caller edit them, and writes them back. Batches of
// pages use two buffers alternately: while one batch is edited, the next is read and the one before
// is written. The last batches are still being written when the next step runs; a read of one of
// their pages waits for the write first.
//
// A failed write loses nothing: the pages stay in their buffer. The next use of these pages in the
// file, or of the buffer, writes them again first, and returns the disk's error if that fails too.
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
  // Returns the bytes of the buffers for editing pages of `all_bytes` bytes in all, with buffers of
  // `max_bytes`.
  [[nodiscard]] static uint64_t BytesFor(uint64_t all_bytes, uint64_t max_bytes) {
    return IoMemory::BytesFor(std::min(all_bytes, max_bytes));
  }

  // Makes an editor of the pages of `file`, with buffers of `max_bytes` bytes in all. A unit that
  // is larger gets one buffer for itself.
  T1Edits(PageFile* file, size_t max_bytes) : file_(file), max_bytes_(max_bytes) {}
  // Waits until reads and writes under way have ended.
  ~T1Edits();
  T1Edits(const T1Edits&) = delete;
  T1Edits& operator=(const T1Edits&) = delete;

  enum class Access { kRead, kWrite, kReadAndWrite };
  struct Page {
    uint32_t file_page = 0;
    Access access = Access::kRead;  // kWrite: the file's contents are not read
    std::byte** address = nullptr;  // set to the page's address for the unit's edit; else null
  };
  using Unit = std::vector<Page>;  // pages that one edit needs in memory together

  // Allocates the memory that Run() needs, so that Run() cannot lack it. The largest unit has
  // `largest_bytes` bytes of pages, all units together `all_bytes`. Errors: OutOfMemory.
  Status Reserve(size_t largest_bytes, size_t all_bytes);
  // Reads the pages of each unit, calls edit(i) for the units in order, and begins to write the
  // pages back. After an error some units were not edited; the edited ones are written. REQUIRES:
  // no page is in two units or twice in one.
  Status Run(std::span<const Unit> units, const std::function<void(size_t)>& edit);

  // Repeats the writes that have failed, and returns their error if they fail again. Does not wait
  // for writes under way.
  Status Check();
  // Return when all earlier edits of these pages, or of any page, are written to the file.
  Status WaitFor(std::span<const PageIo> pages);
  Status WaitForWrites();
  // Waits for a write of a page that is about to be freed, and drops a pending one.
  void Forget(uint32_t file_page);

  [[nodiscard]] size_t memory_bytes() const;
  // Returns the seconds that WaitFor() and WaitForWrites() took since the last call of this
  // function.
  [[nodiscard]] double TakeWaitSeconds();

 private:
  struct Buffer {
    IoMemory memory;
    std::optional<PageFile::Ticket> reading;
    std::vector<PageIo> to_write;  // to be written once edited
    // Lists the edited pages, ascending. If `writing` is set, they are being written; if not,
    // writing them has failed.
    std::vector<PageIo> written;
    std::optional<PageFile::Ticket> writing;
  };
  struct Batch {
    size_t first = 0, end = 0;  // range of the batch's units
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
