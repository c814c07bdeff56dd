// Makes the rows of T1 readable during a step: it stages them a layer ahead, loads the rows that a
// layer selects, reads them from a lender's T0, or lets the step read them in place.
//
// Invariant: while a step reads lent rows, the pages and slots of a stream list the lender's pages
// after its own, with the addresses of the lender's last FindAddresses().
//
// Thread safety: the thread of each part calls StageLayer(); many threads may call const functions;
// everything else is called between steps.
#ifndef EBB_KV_T1_READER_H_
#define EBB_KV_T1_READER_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/report.h"
#include "src/kv/cache_health.h"
#include "src/kv/lent_rows.h"
#include "src/kv/page_map.h"
#include "src/kv/tables/group_tables.h"
#include "src/rows/t1_page_cache.h"
#include "src/rows/t1_stage.h"

namespace ebb {

// T1Reading selects how a step reads T1. kStaged: a layer ahead into other memory. kInPlace: at the
// rows' permanent addresses, if T1 allows it. kSelected: only pages with rows that a layer names by
// WantRows(). kStagedAndCached: all rows, but pages that selective steps keep in memory are used
// from there and not read again.
enum class T1Reading { kStaged, kInPlace, kSelected, kStagedAndCached };

// CachedT1 counts the pages of T1 that stay in memory between steps that read selected rows.
struct CachedT1 {
  double share = 0;           // of all
  uint64_t t0_cap_bytes = 0;  // which the pages of T0 and those in memory share; 0: no cap
};

class T1Reader {
 public:
  // Makes a reader. REQUIRES: all arguments outlive it.
  T1Reader(const ModelShape& shape, const CacheLayout& layout, const RowStores& stores,
           GroupTables* tables, PageMap* pages);

  // Lender names the parts of the cache whose T0 has rows that this cache has in T1.
  struct Lender {
    const GroupTables* tables = nullptr;
    PageMap* pages = nullptr;
    const CacheHealth* health = nullptr;
  };
  void BorrowFrom(const Lender& lender) { lender_ = lender; }

  // Begins a step: allocates memory and starts to read. Errors: OutOfMemory, those of a file; the
  // caller must call End() even then. REQUIRES: FindAddresses() was called.
  Status Begin(T1Reading reading);
  // Stages the rows of an attention's layer. This and the functions up to ReadWantedRows()
  // implement StagedStep's functions of these names.
  void StageLayer(int attention, int part) const {
    if (ReadsAhead()) stage_->StageLayer(stage_of_attention_[attention], part);
  }
  void ReleaseLayer(int attention) const {
    if (ReadsAhead() && IsLastOfStage(attention)) {
      stage_->ReleaseLayer(stage_of_attention_[attention]);
    }
  }
  void EndLayer(int attention) const {
    if (ReadsAhead() && IsLastOfStage(attention)) stage_->EndLayer(stage_of_attention_[attention]);
  }
  void BeginSelection() const {
    if (reads_selected_) page_cache_->BeginLayer();
  }
  void ClearAddresses(int layer) const;
  void WantRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ForeseeRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ReadWantedRows() {
    if (reads_selected_) (void)page_cache_->Read();  // End() returns the error
  }
  // Ends the step. Returns the first error of its reads.
  Status End();
  void set_cached(const CachedT1& cached) { cached_ = cached; }
  void ReleaseCached() {
    if (page_cache_ != nullptr) page_cache_->Clear();
  }
  // Discards pages that were read ahead, because pages change between steps.
  void Forget() {
    if (stage_ != nullptr) stage_->Forget();
  }

  // Returns whether this step copies rows of T1 to other memory.
  [[nodiscard]] bool IsStaged() const { return stage_ != nullptr && !reads_in_place_; }
  [[nodiscard]] bool reads_in_place() const { return reads_in_place_; }
  // Returns the pages of a stream's rows in T0 and T1, for this step; SlotsOf() returns their
  // slots.
  [[nodiscard]] std::span<std::byte* const> PagesOf(int stream) const {
    return reads_lent_ ? pages_with_lent_[stream] : pages_->stream(stream).pages;
  }
  [[nodiscard]] std::span<const Slot> SlotsOf(const GroupTable& table) const {
    return reads_lent_ ? lent_.slots() : table.FullSlots();
  }
  // Returns how many pages the last step read from the lender's T0.
  [[nodiscard]] size_t num_lent_pages() const { return lent_.num_pages(); }
  // Returns the bytes of T1 that the last step read, from memory or from the file.
  [[nodiscard]] size_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] double wait_seconds() const {
    const double selected = page_cache_ == nullptr ? 0 : page_cache_->stats().wait_seconds;
    return stage_ == nullptr ? 0 : stage_->wait_seconds() + selected;
  }
  // Returns the pages, bytes and waiting time of steps that read selected rows.
  [[nodiscard]] SelectionAccounting selection() const;
  [[nodiscard]] size_t table_bytes() const;

 private:
  // Returns whether this step stages the rows of all layers in advance.
  [[nodiscard]] bool ReadsAhead() const { return IsStaged() && !reads_selected_; }
  // Returns whether the next attention reads another layer, so that this one's stage may be
  // released.
  [[nodiscard]] bool IsLastOfStage(int attention) const {
    const size_t next = static_cast<size_t>(attention) + 1;
    return next == stage_of_attention_.size() ||
           stage_of_attention_[next] != stage_of_attention_[attention];
  }
  // Calls visit(page) for the pages of T1 that have rows of the ranges; it may visit a page more
  // than once.
  template <typename Visitor>
  void ForEachT1Page(int stream, std::span<const RowRange> ranges, const Visitor& visit) const;
  void FindLentRows();
  [[nodiscard]] std::vector<T1Stage::Pages> PagesToStage(T1Reading reading);
  // Begins a step that reads selected rows. keeps_stage: keeps the stage's memory for the next step
  // that reads all rows.
  Status BeginSelected(bool keeps_stage);

  const CacheLayout& layout_;
  T1Stage* const stage_;           // null: T1 is attended to where it lies, or there is none
  T1PageCache* const page_cache_;  // null: all rows are read
  GroupTables* const tables_;
  PageMap* const pages_;
  // staged_layers_ lists layers in the order in which a step stages them; consecutive attentions
  // that read one layer count once. stage_of_attention_ gives each attention's index in that list.
  std::vector<int> staged_layers_, stage_of_attention_;
  Lender lender_;
  LentRows lent_;                                // to the last step
  T1Reading last_reading_ = T1Reading::kStaged;  // of the last step that began
  bool reads_in_place_ = false;                  // in this step
  bool reads_selected_ = false;                  // in this step
  CachedT1 cached_;
  bool reads_lent_ = false;  // a step is under way to which rows are lent
  // Lists, for each stream, its own pages and then the lender's.
  std::vector<std::vector<std::byte*>> pages_with_lent_;
  size_t bytes_read_ = 0;
  int64_t misses_before_ = 0;  // of the page cache, before this step
};

}  // namespace ebb

#endif  // EBB_KV_T1_READER_H_
