// Makes the rows of T1 readable during a step: staged a layer ahead, loaded as a layer selects
// them, read in the T0 of a lender, or left where they are.
//
// Invariant: while a step reads lent rows, pages and slots of a stream name the lender's pages
// after its own; they are those of the lender's last FindAddresses().
//
// Thread safety: StageLayer() is called by the thread of each part; const functions by many
// threads; everything else between steps.
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

// kInPlace: rows of T1 stay where they are, if T1 allows it. kSelected: each layer names the rows
// that it reads (WantRows()), and pages that are staged are not read unless they have such rows.
// kStagedAndCached: all rows are read, and the pages that selective steps keep in memory stay there
// and are not read.
enum class T1Reading { kStaged, kInPlace, kSelected, kStagedAndCached };

// The pages of T1 that steps which read selected rows keep where they read them.
struct CachedT1 {
  double share = 0;           // of all
  uint64_t t0_cap_bytes = 0;  // which the pages of T0 and those in memory share; 0: no cap
};

class T1Reader {
 public:
  // All outlive it.
  T1Reader(const ModelShape& shape, const CacheLayout& layout, const RowStores& stores,
           GroupTables* tables, PageMap* pages);

  // The cache whose T0 has rows that this one's T1 has too.
  struct Lender {
    const GroupTables* tables = nullptr;
    PageMap* pages = nullptr;
    const CacheHealth* health = nullptr;
  };
  void BorrowFrom(const Lender& lender) { lender_ = lender; }

  // Begins a step. Makes room and starts to read. Errors, after which End() is to come all the
  // same: OutOfMemory, those of a file. REQUIRES: addresses are found.
  Status Begin(T1Reading reading);
  // See StagedStep.
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
  // Pages change between steps: those that were read ahead are read again.
  void Forget() {
    if (stage_ != nullptr) stage_->Forget();
  }

  // Whether the rows of a step are brought to other memory.
  [[nodiscard]] bool IsStaged() const { return stage_ != nullptr && !reads_in_place_; }
  [[nodiscard]] bool reads_in_place() const { return reads_in_place_; }
  // Pages and slots of the rows of T0 and T1 of a stream, for this step.
  [[nodiscard]] std::span<std::byte* const> PagesOf(int stream) const {
    return reads_lent_ ? pages_with_lent_[stream] : pages_->stream(stream).pages;
  }
  [[nodiscard]] std::span<const Slot> SlotsOf(const GroupTable& table) const {
    return reads_lent_ ? lent_.slots() : table.full.slots();
  }
  // Pages that the last step read from the lender's T0.
  [[nodiscard]] size_t num_lent_pages() const { return lent_.num_pages(); }
  // Bytes of T1 that the last step read, wherever T1 lies.
  [[nodiscard]] size_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] double wait_seconds() const {
    const double selected = page_cache_ == nullptr ? 0 : page_cache_->stats().wait_seconds;
    return stage_ == nullptr ? 0 : stage_->wait_seconds() + selected;
  }
  // The pages, bytes and waiting of steps that read selected rows.
  [[nodiscard]] SelectionAccounting selection() const;
  [[nodiscard]] size_t table_bytes() const;

 private:
  // Whether this step reads the rows of all layers ahead of them.
  [[nodiscard]] bool ReadsAhead() const { return IsStaged() && !reads_selected_; }
  // Whether no attention that follows at once reads the same layer.
  [[nodiscard]] bool IsLastOfStage(int attention) const {
    const size_t next = static_cast<size_t>(attention) + 1;
    return next == stage_of_attention_.size() ||
           stage_of_attention_[next] != stage_of_attention_[attention];
  }
  // Visits the pages of T1 that have rows of the ranges, as visit(page), some of them more than
  // once.
  template <typename Visitor>
  void ForEachT1Page(int stream, std::span<const RowRange> ranges, const Visitor& visit) const;
  void FindLentRows();
  [[nodiscard]] std::vector<T1Stage::Pages> PagesToStage(T1Reading reading);
  // keeps_stage: the memory of the stage stays for the next step that reads all rows.
  Status BeginSelected(bool keeps_stage);

  const CacheLayout& layout_;
  T1Stage* const stage_;           // null: T1 is attended to where it lies, or there is none
  T1PageCache* const page_cache_;  // null: all rows are read
  GroupTables* const tables_;
  PageMap* const pages_;
  // The layers in the order that a step stages them, where attentions that follow one another and
  // read one layer count once; and for each attention which of them it reads.
  std::vector<int> staged_layers_, stage_of_attention_;
  Lender lender_;
  LentRows lent_;                                // to the last step
  T1Reading last_reading_ = T1Reading::kStaged;  // of the last step that began
  bool reads_in_place_ = false;                  // in this step
  bool reads_selected_ = false;                  // in this step
  CachedT1 cached_;
  bool reads_lent_ = false;  // a step is under way to which rows are lent
  // [streams]: the pages of each stream, and after them the lender's.
  std::vector<std::vector<std::byte*>> pages_with_lent_;
  size_t bytes_read_ = 0;
  int64_t misses_before_ = 0;  // of the page cache, before this step
};

}  // namespace ebb

#endif  // EBB_KV_T1_READER_H_
