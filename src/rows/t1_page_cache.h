// T1PageCache caches pages of T1, in the memory that steps read, for steps that read only some of
// them. It evicts the least recently used pages. A step names a layer's pages with Want(); Read()
// loads those that are not cached, and work that starts afterwards finds all of them.
//
// It does not evict a page that the current step or the one before has used, because layers are
// read in a cycle, in which plain LRU would evict every page shortly before its next use. If no
// other page is left to evict, a layer's further pages are spilled: loaded into memory that is
// reused two layers later. Pages are read ahead: while a layer is attended to, the cache loads the
// pages that the next layer has foreseen (Foresee()) in the step before, or, if it foresaw none,
// the pages that it spilled then.
//
// Thread safety: one caller at a time.
#ifndef EBB_ROWS_T1_PAGE_CACHE_H_
#define EBB_ROWS_T1_PAGE_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ebb/status.h"
#include "src/io/page_file.h"
#include "src/rows/arena.h"
#include "src/rows/page_loader.h"

namespace ebb {

class T1PageCache {
 public:
  explicit T1PageCache(std::unique_ptr<PageLoader> loader) : loader_(std::move(loader)) {}
  ~T1PageCache() { Clear(); }
  T1PageCache(const T1PageCache&) = delete;
  T1PageCache& operator=(const T1PageCache&) = delete;

  struct StepSize {
    size_t capacity = 0;       // the most pages to cache
    size_t most_of_layer = 0;  // the most pages that one layer reads
  };
  // Returns the most bytes that the cache takes for steps of this size.
  [[nodiscard]] static uint64_t BytesFor(const StepSize& size, size_t page_bytes) {
    return kChunkBytes *
           (ChunksFor(size.capacity, page_bytes) + 2 * ChunksFor(size.most_of_layer, page_bytes));
  }
  // Begins a step: allocates the memory that Want() and Read() need. If memory is short, caches
  // fewer pages than the capacity. Errors: OutOfMemory if not even one layer fits.
  Status Begin(const StepSize& size);
  // Begins the next layer of the step. The addresses of the layer before are no longer valid.
  void BeginLayer();
  // Requests a page: sets *address to its address once Read() has returned. A second request in a
  // layer changes nothing. REQUIRES: the step requests no more pages than Begin() was called for.
  void Want(PageId page, std::byte** address);
  // Notes that this layer will probably want the page in the next step, so that it can be read
  // ahead.
  void Foresee(PageId page) {
    if (foreseen_.size() < foreseen_.capacity()) foreseen_.push_back(page);
  }
  // Loads the requested pages that are missing, and begins to read ahead. After an error, which
  // End() returns too, the contents of the requested pages are unspecified.
  Status Read();
  // Ends the step. Returns the first error of the step.
  Status End();
  // Returns the address of a cached page; null: it is not cached. Valid until the next step begins.
  [[nodiscard]] std::byte* Find(PageId page) const;
  // Removes a page from the cache, because its contents change.
  void Drop(PageId page);
  // Frees all memory.
  void Clear();

  struct Stats {
    int64_t hits = 0;    // requested pages that were cached
    int64_t misses = 0;  // pages loaded, including those read ahead in vain
    double wait_seconds = 0;
  };
  [[nodiscard]] const Stats& stats() const { return stats_; }
  [[nodiscard]] size_t memory_bytes() const {
    return (chunks_.size() + spills_[0].chunks.size() + spills_[1].chunks.size()) * kChunkBytes +
           loader_->memory_bytes();
  }

 private:
  static constexpr size_t kChunkBytes = size_t{2} << 20;
  static constexpr uint32_t kNone = ~uint32_t{0};
  // Place is memory for a page. Places with a page form a list, the most recently used first.
  struct Place {
    PageId page = kNoPage;
    uint64_t step = 0;         // last step that used the page or read it ahead
    uint64_t wanted_step = 0;  // last step that requested or loaded it
    uint32_t before = kNone, after = kNone;
  };
  struct SpilledPage {
    PageId page = kNoPage;
    bool is_wanted = false;  // requested by the layer; false: read ahead in vain
  };
  // Spill holds the pages of one layer that found no place in the cache.
  struct Spill {
    std::vector<LoadedMemory> chunks;
    std::vector<SpilledPage> pages;  // page i lies at AddressOf(chunks, i)
    std::optional<PageLoader::Batch> reading_ahead;
  };

  static size_t ChunksFor(size_t num_pages, size_t page_bytes) {
    const size_t per_chunk = kChunkBytes / page_bytes;
    return (num_pages + per_chunk - 1) / per_chunk;
  }
  [[nodiscard]] size_t pages_per_chunk() const { return kChunkBytes / loader_->page_bytes(); }
  [[nodiscard]] std::byte* AddressOf(const std::vector<LoadedMemory>& chunks, size_t place) const {
    return chunks[place / pages_per_chunk()].data() +
           place % pages_per_chunk() * loader_->page_bytes();
  }
  Status Resize(size_t num_chunks, std::vector<LoadedMemory>* chunks);
  // Allocates or frees chunks until chunks_ has `num_chunks`, and makes a place for each page that
  // they hold; drops cached pages whose place goes. If memory runs out, keeps seven eighths of the
  // chunks that could be allocated, limits later steps to that number (most_chunks_) and returns
  // OK. Errors: those of PageLoader::Allocate() except OutOfMemory.
  Status ResizePlaces(size_t num_chunks);
  void Unlink(uint32_t place);
  void LinkFirst(uint32_t place);
  // Marks the page at `place` as used by this step.
  void Use(uint32_t place);
  // Puts a page that this step uses in an empty place.
  void Fill(uint32_t place, PageId page);
  void Free(uint32_t place);
  // Returns an empty place for a page, evicting one if needed; kNone: all pages were used too
  // recently.
  uint32_t TakePlace();

  [[nodiscard]] Spill& SpillOf(size_t layer) { return spills_[layer % 2]; }
  // Gives a page memory among the layer's spilled pages, and returns its address.
  std::byte* SpillPage(PageId page, size_t layer);
  // Begins to load the pages of requests_. Returns nullopt if there are none or on an error, which
  // it writes to *status.
  std::optional<PageLoader::Batch> Load(Status* status);
  // Records which pages the next step should read ahead for the layer.
  void NoteExpected(size_t layer);
  // Begins to load the pages that the step before recorded for the layer.
  void ReadAhead(size_t layer);
  // Returns where to load a page that is read ahead; null: it is cached already, or is not to be
  // loaded.
  std::byte* PlaceAhead(PageId page, size_t layer, bool is_foreseen);
  Status WaitForReadAhead(Spill* spill);
  // Forgets the spilled pages. PageLoader::Finish() ends the loading of those that are read ahead.
  void ForgetSpill(Spill* spill);

  const std::unique_ptr<PageLoader> loader_;
  std::vector<LoadedMemory> chunks_;                         // memory of places_
  size_t most_chunks_ = std::numeric_limits<size_t>::max();  // lowered if memory runs out
  std::vector<Place> places_;
  std::vector<uint32_t> free_;      // empty places
  std::vector<uint32_t> place_of_;  // [page ids]: index in places_; kNone: not cached
  uint32_t first_ = kNone, last_ = kNone;
  std::array<Spill, 2> spills_;     // spilled pages of two adjacent layers, used alternately
  std::vector<uint32_t> spill_of_;  // [page ids]: index in the layer's spill; kNone: not spilled
  // Expected lists the pages that a layer is expected to want in the next step, judging by the last
  // step.
  struct Expected {
    std::vector<PageId> pages;
    bool is_foreseen = false;  // the layer foresaw them; false: it spilled them
  };
  std::vector<Expected> expected_;  // [layers]
  // Holds, for each page id, 1 + the last layer that expected the page; 0: none, or the page was
  // dropped since.
  std::vector<uint32_t> expected_by_;
  std::vector<PageId> foreseen_;  // by the current layer, for the next step
  std::vector<PageIo> requests_;  // missing pages of the current layer
  size_t layer_ = 0;              // number of layers begun in the step
  uint64_t step_ = 0;
  Status error_;
  Stats stats_;
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_PAGE_CACHE_H_
