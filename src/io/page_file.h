// PageFile stores pages of one size in a private file, as a tier on disk. Pages of one layer lie
// together in segments of 64, so that a layer is read by a few long reads. Reads and writes bypass
// the page cache and are asynchronous; a ticket identifies a batch of them: start, compute, wait.
// Starting hands requests to the kernel (or to threads that wait there); Wait() sleeps as
// IoQueue::Take() does. At most `queue_depth` requests of at most 1 MiB (one page, if that is
// longer) are in flight; later calls start the others.
//
// From Start...() until Wait() returns, the file owns the memory of the batch. Meanwhile a page
// that is being written must not be read, written or freed, and a page that is being read must not
// be written or freed.
//
// Reads are fastest into IoMemory with the pages in ascending order: pages that are adjacent in the
// file and in memory are one piece for the disk (bench/io_bench.cc).
//
// Thread safety: one caller at a time.
#ifndef EBB_IO_PAGE_FILE_H_
#define EBB_IO_PAGE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/io/disk_faults.h"
#include "src/io/io_queue.h"
#include "src/io/private_file.h"
#include "src/io/segment_table.h"

namespace ebb {

struct PageFileOptions {
  std::string folder;     // empty: $TMPDIR, else /var/tmp
  size_t page_bytes = 0;  // a multiple of 4096, at most 2 MiB
  size_t cap_bytes = 0;   // cap on disk space for pages, rounded down to segments; 0: none
  IoEngine engine = IoEngine::kAuto;
  int queue_depth = 32;
  int num_threads = 4;  // threads of engine kThreads
  Buffering buffering = Buffering::kDirectOnly;
  // Keeps a hash of each page in memory and compares it with the hash of the bytes that are read.
  bool verify_checksums = false;
  FaultHook faults;
};

struct PageIo {
  uint32_t page = 0;
  std::byte* memory = nullptr;  // [page_bytes], aligned to 4096
};

struct PageFileStats {
  size_t bytes_read = 0;  // all bytes read, also by failed reads
  size_t bytes_written = 0;
  double read_seconds = 0;  // time with reads in flight, as far as calls noticed
  double wait_seconds = 0;  // time spent in Wait()
  size_t file_bytes = 0;    // disk space of all segments
  size_t peak_file_bytes = 0;
  size_t num_pages = 0;    // pages allocated
  size_t table_bytes = 0;  // memory of the tables of pages and segments
};

class PageFile {
 public:
  // Ticket identifies a batch of reads or writes, from Start...() to Wait().
  struct Ticket {
    uint64_t id = 0;
  };

  // Returns the disk space of `num_layers` layers with `pages_of_layer` pages each, in whole
  // segments.
  [[nodiscard]] static uint64_t BytesFor(uint64_t pages_of_layer, int num_layers,
                                         size_t page_bytes);

  // Creates an empty file. Errors: those of PrivateFile; InvalidArgument; Unsupported if
  // options.engine is kUring and the kernel refuses io_uring.
  static Result<std::unique_ptr<PageFile>> Create(const PageFileOptions& options);
  // Waits for requests in flight, and drops those that were not started.
  ~PageFile();
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // Allocates `num_pages` pages for the layer, the lowest free pages of its segments first, and
  // appends them to *pages. Reserves their disk space. Errors: T1Full (the cap) or StorageFull (the
  // disk), after which nothing has changed. REQUIRES: layer >= 0.
  Status Allocate(int layer, size_t num_pages, std::vector<uint32_t>* pages);
  // Adds a holder to the page; the page is freed when each of its holders has called Free().
  void Share(uint32_t page);
  [[nodiscard]] uint32_t num_holders(uint32_t page) const;
  // Removes a holder from each page and frees pages without holders. A segment without pages
  // returns its space to the disk, which may wait until requests in flight end. One call for
  // adjacent pages is faster than a call for each. REQUIRES: the pages are owned, and this holder
  // has no request for them in flight.
  void Free(std::span<const uint32_t> pages);
  void Free(uint32_t page) { Free({&page, 1}); }

  // Starts a batch of reads (writes). Errors: InvalidArgument (memory not aligned; a page that is
  // not owned, that is in flight, or that is to be read but was never written; a page that is to be
  // written twice) and OutOfMemory, after which nothing was started. Wait() returns errors of the
  // disk.
  Result<Ticket> StartRead(std::span<const PageIo> pages);
  Result<Ticket> StartWrite(std::span<const PageIo> pages);
  // Returns whether Wait() would return without sleeping. Never sleeps itself.
  [[nodiscard]] bool Done(Ticket ticket);
  // Sleeps until the whole batch has ended. Call it once for each ticket. Errors: IoError (the
  // system's error and the place), StorageFull, Corrupt (a page has other bytes than were written).
  // A failed read leaves the contents of the memory unspecified; a failed write those of the pages.
  Status Wait(Ticket ticket);

  [[nodiscard]] PageFileStats stats() const;
  [[nodiscard]] bool direct() const;
  [[nodiscard]] IoEngine engine() const;  // the one in use; never kAuto
  [[nodiscard]] size_t page_bytes() const;
  [[nodiscard]] size_t cap_bytes() const;  // 0: no cap
  // Returns a number above that of every page that was ever allocated.
  [[nodiscard]] size_t page_end() const;
  [[nodiscard]] const std::string& folder() const;
  // Returns the bytes that the file occupies on the disk, as the system counts them.
  [[nodiscard]] size_t DiskBytes() const;

 private:
  PageFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_IO_PAGE_FILE_H_
