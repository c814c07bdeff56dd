// Keeps pages of T1 in the memory that steps read, the host's or a device's, for steps that read
// only some of them: those that recent steps read, least recently used pages going first. A step
// names the pages of a layer with Want(), and Read() loads those that are not cached; work that
// starts after it finds all of them.
//
// A page that this step or the one before has used is not evicted: layers follow one another in a
// cycle, in which an eviction by age alone would take every page shortly before its next use. While
// there is no other page to evict, further pages of a layer are spilled: they go to memory that is
// reused two layers later. Pages are read ahead: while a layer is attended to, those that the next
// layer foresaw in the step before are on their way, or, if it foresaw none, those that it spilled.
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
    size_t capacity = 0;       // pages that the cache may keep
    size_t most_of_layer = 0;  // the most pages of any layer; a layer wants its own alone
  };
  // Returns the most bytes that steps of this size need.
  [[nodiscard]] static uint64_t BytesFor(const StepSize& size, size_t page_bytes) {
    return kChunkBytes *
           (ChunksFor(size.capacity, page_bytes) + 2 * ChunksFor(size.most_of_layer, page_bytes));
  }
  // Begins a step. Takes the memory that Want() and Read() need; fewer pages are kept than the
  // capacity where memory for more is not to be had. OutOfMemory.
  Status Begin(const StepSize& size);
  // Begins the next layer of the step: pages of the layer before may lose their addresses.
  void BeginLayer();
  // Sets *address to where the page lies once Read() has returned. Naming a page twice in a layer
  // has no further effect. REQUIRES: the step is as large as Begin() says.
  void Want(PageId page, std::byte** address);
  // Names a page that the layer will want in the next step, if it knows its pages then.
  void Foresee(PageId page) {
    if (foreseen_.size() < foreseen_.capacity()) foreseen_.push_back(page);
  }
  // Reads the pages that are missing, and begins to read ahead. After an error, which End() returns
  // too, the pages' contents are unspecified.
  Status Read();
  // Ends the step. Returns its first error.
  Status End();
  // Returns where a page that is cached lies; null: it is not. Valid until the next step begins.
  [[nodiscard]] std::byte* Find(PageId page) const;
  // Forgets the contents of a page, which change.
  void Drop(PageId page);
  // Gives all memory back.
  void Clear();

  struct Stats {
    int64_t hits = 0;    // pages that were there
    int64_t misses = 0;  // pages that were read, those that were read ahead in vain among them
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
  // Place has room for a page. Places with a page form a list, the most recently used first.
  struct Place {
    PageId page = kNoPage;
    uint64_t step = 0;         // that used the page last, or read it ahead
    uint64_t wanted_step = 0;  // that wanted it last, or loaded it
    uint32_t before = kNone, after = kNone;
  };
  struct SpilledPage {
    PageId page = kNoPage;
    bool is_wanted = false;  // by the layer; else it was read ahead in vain
  };
  // Spill holds the pages of one layer for which no place was free.
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
  // Allocates or frees chunks until chunks_ holds `num_chunks`, and makes a place in places_ for
  // each page that they can hold; drops the cached pages whose places go. If there is no memory for
  // so many, keeps seven eighths of the chunks that there was memory for, limits later steps to
  // that number by most_chunks_ and returns OK. Errors: those of PageLoader::Allocate() but
  // OutOfMemory.
  Status ResizePlaces(size_t num_chunks);
  void Unlink(uint32_t place);
  void LinkFirst(uint32_t place);
  // Marks the page of the place as used by this step.
  void Use(uint32_t place);
  // Gives the place, which has no page, a page that this step uses.
  void Fill(uint32_t place, PageId page);
  void Free(uint32_t place);
  // Returns a place for a page that comes; kNone: every page there was used lately.
  uint32_t TakePlace();

  [[nodiscard]] Spill& SpillOf(size_t layer) { return spills_[layer % 2]; }
  // Gives a page memory among those that the layer spills, and returns it.
  std::byte* SpillPage(PageId page, size_t layer);
  // Begins to load the pages of requests_. nullopt: there are none, or *status is an error.
  std::optional<PageLoader::Batch> Load(Status* status);
  // Records the pages of the layer that the next step reads ahead.
  void NoteExpected(size_t layer);
  // Begins to read the pages that were recorded for the layer in the step before.
  void ReadAhead(size_t layer);
  // Returns where a page is read ahead to; null: it is there, or need not be read.
  std::byte* PlaceAhead(PageId page, size_t layer, bool is_foreseen);
  Status WaitForReadAhead(Spill* spill);
  // Forgets the spilled pages. Those that are read ahead are left to PageLoader::Finish().
  void ForgetSpill(Spill* spill);

  const std::unique_ptr<PageLoader> loader_;
  std::vector<LoadedMemory> chunks_;                         // of places_
  size_t most_chunks_ = std::numeric_limits<size_t>::max();  // less after memory ran out
  std::vector<Place> places_;
  std::vector<uint32_t> free_;      // places without a page
  std::vector<uint32_t> place_of_;  // [pages]; kNone: not cached
  uint32_t first_ = kNone, last_ = kNone;
  std::array<Spill, 2> spills_;     // of a layer and of the next one, in turns
  std::vector<uint32_t> spill_of_;  // [pages]: place in its layer's spill; kNone: not there
  // Expected lists the pages that a layer is expected to want, judging by the last step that
  // computed the layer.
  struct Expected {
    std::vector<PageId> pages;
    bool is_foreseen = false;  // else those that it spilled
  };
  std::vector<Expected> expected_;  // [layers]
  // Has, for each page, the last layer that expected it, plus 1; 0: none, or the page was dropped
  // since.
  std::vector<uint32_t> expected_by_;
  std::vector<PageId> foreseen_;  // of this layer, for the next step
  std::vector<PageIo> requests_;  // of this layer
  size_t layer_ = 0;              // layers of the step that have begun
  uint64_t step_ = 0;
  Status error_;
  Stats stats_;
};

}  // namespace ebb

#endif  // EBB_ROWS_T1_PAGE_CACHE_H_
