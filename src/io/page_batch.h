// A batch of reads or writes cut into requests: neighbours in the file are joined, and the rest of
// a short transfer is requested again.
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

// Pages that lie one after the other in the file.
struct PageRun {
  uint64_t offset = 0;  // of what is left
  size_t bytes_left = 0;
  std::span<iovec> parts;  // of what is left
  int num_stalls = 0;      // answers that brought nothing
};

struct PageBatch {
  DiskCall call = DiskCall::kRead;
  std::vector<PageIo> pages;  // sorted by page
  std::vector<iovec> parts;   // at most one per page
  std::vector<PageRun> runs;
  size_t num_started = 0;  // runs
  size_t num_ended = 0;    // runs
  Status status;

  // Runs that are not started when one fails never will be.
  [[nodiscard]] bool HasMore() const { return status.ok() && num_started < runs.size(); }
  [[nodiscard]] bool IsDone() const { return num_ended == num_started && !HasMore(); }
};

// May throw std::bad_alloc.
PageBatch MakeBatch(DiskCall call, std::span<const PageIo> pages, size_t page_bytes);

// Takes note of what a request for the run brought: bytes, or a negated errno. Returns the bytes
// that count; the run is complete when none are left. An error of the file, or no progress in many
// tries, goes to *status.
size_t Advance(PageRun* run, int64_t result, DiskCall call, const PrivateFile& file,
               Status* status);

}  // namespace ebb

#endif  // EBB_IO_PAGE_BATCH_H_
