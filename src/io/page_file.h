// Pages of one size in a private file: the storage of a tier on disk. Pages of one layer lie
// together in segments of 64, so that reading a layer is a few long reads. Reads and writes go past
// the page cache, are asynchronous and are identified by tickets: start, compute, wait. Starting
// hands requests to the kernel (or to threads that wait there); waiting sleeps, as taking from an
// IoQueue does. At most `queue_depth` requests of at most 1 MiB (one page, if that is longer) are
// under way; later calls start the others.
//
// From Start...() until Wait() returns, the memory belongs to the file, and a page that is written
// is neither read, written nor freed, one that is read neither written nor freed.
//
// Reads are fastest into IoMemory with the pages in the order of their numbers: neighbours in the
// file that are neighbours in memory are one piece for the disk (bench/io_bench.cc).
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
  size_t cap_bytes = 0;   // of disk space for pages, rounded down to segments; 0: none
  IoEngine engine = IoEngine::kAuto;
  int queue_depth = 32;
  int num_threads = 4;  // that wait for the disk, of the engine kThreads
  Buffering buffering = Buffering::kDirectOnly;
  // Keeps a hash of each page in memory and compares it with that of the bytes that are read.
  bool verify_checksums = false;
  FaultHook faults;
};

struct PageIo {
  uint32_t page = 0;
  std::byte* memory = nullptr;  // [page_bytes], aligned to 4096
};

struct PageFileStats {
  size_t bytes_read = 0;  // that reached memory, by reads that succeeded or not
  size_t bytes_written = 0;
  double read_seconds = 0;  // while reads were under way, as far as calls could see
  double wait_seconds = 0;  // of waiting in Wait()
  size_t file_bytes = 0;    // of disk space that segments hold
  size_t peak_file_bytes = 0;
  size_t num_pages = 0;    // owned
  size_t table_bytes = 0;  // of memory for the records of pages and segments
};

class PageFile {
 public:
  // A batch of reads or writes, from Start...() to Wait().
  struct Ticket {
    uint64_t id = 0;
  };

  // Returns the bytes of the segments of so many layers with so many pages each.
  [[nodiscard]] static uint64_t BytesFor(uint64_t pages_of_layer, int num_layers,
                                         size_t page_bytes);

  // Errors: those of PrivateFile; InvalidArgument; Unsupported when io_uring was asked for and the
  // kernel refuses it.
  static Result<std::unique_ptr<PageFile>> Create(const PageFileOptions& options);
  // Waits for requests under way; those that were not started are dropped.
  ~PageFile();
  PageFile(const PageFile&) = delete;
  PageFile& operator=(const PageFile&) = delete;

  // Appends `num_pages` pages of the layer to *pages, the file's lowest holes first. Disk space is
  // taken here. T1Full (the cap) or StorageFull (the disk), and nothing changed.
  // REQUIRES: layer >= 0.
  Status Allocate(int layer, size_t num_pages, std::vector<uint32_t>* pages);
  // One holder more: the page needs as many calls of Free().
  void Share(uint32_t page);
  [[nodiscard]] uint32_t num_holders(uint32_t page) const;
  // Gives the pages back, those with several holders for one of them; segments whose last page goes
  // give their space back to the disk, which may wait until requests under way end. Neighbours go
  // together in one call, which is faster than one after another. REQUIRES: owned, and not under
  // way for this holder.
  void Free(std::span<const uint32_t> pages);
  void Free(uint32_t page) { Free({&page, 1}); }

  // Errors: InvalidArgument (memory not aligned, a page that is not owned, under way, or, to read,
  // never written; twice the same page to write) and OutOfMemory, both with
  // nothing started. Wait() returns the errors of the disk.
  Result<Ticket> StartRead(std::span<const PageIo> pages);
  Result<Ticket> StartWrite(std::span<const PageIo> pages);
  // Whether Wait() would not sleep. Never sleeps itself.
  [[nodiscard]] bool Done(Ticket ticket);
  // Sleeps until the whole batch has ended; once for each ticket. Errors: IoError (the system's
  // error and the place), StorageFull, Corrupt (a page with other bytes than were
  // written). After a failed read the memory's contents, after a failed write the pages', are
  // unspecified.
  Status Wait(Ticket ticket);

  [[nodiscard]] PageFileStats stats() const;
  [[nodiscard]] bool direct() const;
  [[nodiscard]] IoEngine engine() const;  // never kAuto
  [[nodiscard]] size_t page_bytes() const;
  [[nodiscard]] size_t cap_bytes() const;  // 0: none
  // Above the number of every page that was ever allocated.
  [[nodiscard]] size_t page_end() const;
  [[nodiscard]] const std::string& folder() const;
  // The bytes that the file occupies, as the system counts them.
  [[nodiscard]] size_t DiskBytes() const;

 private:
  PageFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_IO_PAGE_FILE_H_
