// Keeps pages of a T1 file in memory for steps that read only some of them: those that recent steps
// read, least recently used pages going first. A step names the pages of a layer with Want(), and
// Read() returns once all of them are there; pages that are not cached are read from the file.
//
// A page that a step has used is not evicted before the step ends: layers follow one another in a
// cycle, in which an eviction by age alone would take every page shortly before its next use. When
// every cached page was used in this step, further pages of a layer go to memory that the next
// layer reuses.
//
// Thread safety: one caller at a time.
#ifndef EBB_ROWS_T1_PAGE_CACHE_H_
#define EBB_ROWS_T1_PAGE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ebb/status.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"
#include "src/rows/arena.h"
#include "src/rows/t1_edits.h"

namespace ebb {

class T1PageCache {
 public:
  // Both outlive it.
  T1PageCache(PageFile* file, T1Edits* edits) : file_(file), edits_(edits) {}
  T1PageCache(const T1PageCache&) = delete;
  T1PageCache& operator=(const T1PageCache&) = delete;

  struct StepSize {
    size_t capacity = 0;       // pages that the cache may keep
    size_t most_of_layer = 0;  // pages that one layer may want
    PageId page_end = 0;       // above every page that the step may want
  };
  // Begins a step. Takes the memory that Want() and Read() need. OutOfMemory.
  Status Begin(const StepSize& size);
  // Begins the next layer: pages of the layer before may lose their addresses.
  void BeginLayer();
  // Sets *address to where the page lies once Read() has returned. Naming a page twice in a layer
  // has no further effect. REQUIRES: the step is as large as Begin() says.
  void Want(PageId page, std::byte** address);
  // Reads the pages that are missing. Returns the first error of the step at once; the pages'
  // contents are then unspecified, and End() forgets them.
  Status Read();
  // Ends the step. Returns its first error.
  Status End();
  // Forgets the contents of a page, which change.
  void Drop(PageId page);
  // Gives all memory back.
  void Clear();

  struct Stats {
    int64_t hits = 0;    // pages that were there
    int64_t misses = 0;  // pages that were read
    double wait_seconds = 0;
  };
  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] size_t memory_bytes() const {
    return (chunks_.size() + spill_.size()) * kChunkBytes;
  }

 private:
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr uint32_t kNone = ~uint32_t{0};
  // A place for a page. Places with a page form a list, the most recently used first.
  struct Place {
    PageId page = kNoPage;
    uint64_t step = 0;  // that used the page last
    uint32_t before = kNone, after = kNone;
  };

  [[nodiscard]] size_t pages_per_chunk() const { return kChunkBytes / file_->page_bytes(); }
  [[nodiscard]] std::byte* AddressOf(const std::vector<IoMemory>& chunks, size_t place) const {
    return chunks[place / pages_per_chunk()].data() +
           place % pages_per_chunk() * file_->page_bytes();
  }
  static Status Resize(size_t num_chunks, std::vector<IoMemory>* chunks);
  void Unlink(uint32_t place);
  void LinkFirst(uint32_t place);
  void Free(uint32_t place);
  // Returns a place for a page that comes; kNone: every page there is in use by this step.
  uint32_t TakePlace();

  PageFile* const file_;
  T1Edits* const edits_;
  std::vector<IoMemory> chunks_;  // of places_
  std::vector<IoMemory> spill_;   // of pages that find no place
  std::vector<Place> places_;
  std::vector<uint32_t> free_;      // places without a page
  std::vector<uint32_t> place_of_;  // [pages]; kNone: not cached
  std::vector<PageId> spilled_;     // pages of this layer without a place, ...
  std::vector<uint32_t> spill_of_;  // [pages]: ... and where they lie; kNone: not there
  std::vector<PageIo> requests_;    // of this layer
  uint32_t first_ = kNone, last_ = kNone;
  uint64_t step_ = 0;
  Status error_;
  Stats stats_;
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_PAGE_CACHE_H_
