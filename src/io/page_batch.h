// PageBatch divides a batch of reads or writes into requests: it joins pages that are adjacent in
// the file, and requests the rest of a short transfer again.
#ifndef EBB_IO_PAGE_BATCH_H_
#define EBB_IO_PAGE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/io/io_queue.h"
#include "src/io/page_file.h"

namespace ebb {

// PageRun is a run of pages that are adjacent in the file.
struct PageRun {
  uint64_t offset = 0;  // in the file, of the bytes that are left
  size_t bytes_left = 0;
  std::span<iovec> parts;  // memory of the bytes that are left
  int num_stalls = 0;      // results without progress
};

struct PageBatch {
  DiskCall call = DiskCall::kRead;
  std::vector<PageIo> pages;  // sorted by page
  std::vector<iovec> parts;   // at most one per page
  std::vector<PageRun> runs;
  size_t num_started = 0;  // number of runs started
  size_t num_ended = 0;    // number of runs ended
  Status status;

  // Returns whether runs are left to be started. After a failure no further run is started.
  [[nodiscard]] bool HasMore() const { return status.ok() && num_started < runs.size(); }
  [[nodiscard]] bool IsDone() const { return num_ended == num_started && !HasMore(); }
};

// Makes a batch of runs of at most 1 MiB, or one page if that is longer. May throw std::bad_alloc.
PageBatch MakeBatch(DiskCall call, std::span<const PageIo> pages, size_t page_bytes);

// Records the result of a request for the run: bytes, or a negated errno. Returns the bytes that
// count; the run is complete when none are left. Sets *status to an error of the file, or if many
// requests made no progress.
size_t Advance(PageRun* run, int64_t result, DiskCall call, const PrivateFile& file,
               Status* status);

}  // namespace ebb

#endif  // EBB_IO_PAGE_BATCH_H_
