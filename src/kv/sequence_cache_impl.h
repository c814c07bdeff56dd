// The insides of a SequenceCache, shared by its source files: sequence_cache.cc changes which rows
// there are, sequence_moves.cc where they lie, sequence_compaction.cc and sequence_sorting.cc where
// within a tier, sequence_edits.cc what is in them, sequence_fork.cc shares them with another
// cache, sequence_staging.cc has rows of T1 brought for a step. Where a tier's rows lie is
// src/rows' affair.
//
// Invariants, besides those of the header: every group stands in the list of exactly one table; a
// stream's list of ids has a page exactly where its table has one. stream.pages[p] of a T0 page,
// and of a T1 page where T1 is not staged, is that page's address, except that other caches'
// compaction may have moved it: Refresh() comes before addresses are used. A T1 page that is staged
// has an address there only meanwhile; its own, where it has one, is stream.t1_pages[p]. A page
// that another cache holds too is sealed in its table, and no cache writes to it. Between
// BeginRemoval() and EndRemoval() a stream may hold a page that its table lacks. Where a change
// stopped half-way, streams may have other pages than their tables: the destructor frees each
// stream's own pages.
#ifndef EBB_KV_SEQUENCE_CACHE_IMPL_H_
#define EBB_KV_SEQUENCE_CACHE_IMPL_H_

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/base/attention_layout.h"
#include "src/device/device.h"
#include "src/kv/group_table.h"
#include "src/kv/lent_rows.h"
#include "src/kv/sequence_cache.h"
#include "src/kv/table_moves.h"
#include "src/rows/row_stores.h"
#include "src/rows/t1_stage.h"

namespace ebb {

struct SequenceCache::Impl {
  AttentionLayout layout;
  std::vector<int> windows;  // [groups], in tokens; 0: none
  PageFormat format;
  Granularity granularity;
  CompressedFormat compressed;              // of T2
  const AttentionKernel* kernel = nullptr;  // needed for T2
  Device* device = nullptr;                 // reaches T0
  RowStores stores;
  std::vector<Stream> streams;                      // [streams of the layout]
  std::vector<std::unique_ptr<GroupTable>> tables;  // in order of their creation
  std::vector<GroupTable*> table_of_group;          // [num_groups]
  size_t next_compacted = 0;  // the table that Compact() begins with, so that none starves
  size_t next_sorted = 0;     // the same of Sort()
  int64_t rows_evicted = 0;
  MoveAccounting moved;
  Status broken;              // why rows were lost: a move that stopped half-way
  bool inconsistent = false;  // it ran out of memory: tables and pages do not agree
  // The layers in the order that a step stages them, where attentions that follow one another and
  // read one layer count once; and for each attention which of them it reads.
  std::vector<int> staged_layers, stage_of_attention;
  T1Stage* stage = nullptr;  // null: T1 is attended to where it lies, or there is none
  bool in_place = false;     // this step leaves the rows of T1 where they are
  Impl* lender = nullptr;    // see BorrowFrom()
  LentRows lent;             // to the last step
  bool reads_lent = false;   // a step is under way to which rows are lent
  // Then: the pages of each stream, and after them the lender's.
  std::vector<std::vector<std::byte*>> pages_with_lent;
  size_t t1_bytes_read = 0;
  // The arenas' generations (T0, T1, T2) when addresses were looked up last.
  std::array<uint64_t, 3> generations = {};
  // Work space.
  std::vector<TablePage> added, freed;
  std::vector<uint32_t> full_index, compressed_index;
  std::vector<Tier> tiers;

  Impl(const ModelShape& shape, Granularity granularity_in);

  [[nodiscard]] size_t StreamIndex(int layer, int kv_head) const {
    return layout.StreamOf(layer, kv_head);
  }
  [[nodiscard]] std::span<Stream> StreamsOf(int group) {
    return std::span(streams).subspan(layout.FirstStreamOf(group), layout.NumStreamsOf(group));
  }
  [[nodiscard]] std::span<const Stream> StreamsOf(int group) const {
    return std::span(streams).subspan(layout.FirstStreamOf(group), layout.NumStreamsOf(group));
  }
  [[nodiscard]] size_t NumStreams(std::span<const int> groups) const {
    size_t num_streams = 0;
    for (const int group : groups) num_streams += layout.NumStreamsOf(group);
    return num_streams;
  }
  [[nodiscard]] size_t NumStreams(const GroupTable& group_table) const {
    return NumStreams(group_table.groups);
  }
  [[nodiscard]] int IndexOf(const Stream& stream) const {
    return static_cast<int>(&stream - streams.data());
  }
  [[nodiscard]] int LayerOf(const Stream& stream) const { return layout.LayerOf(IndexOf(stream)); }
  [[nodiscard]] size_t RowBytes() const { return 2 * format.RowStride(); }
  // Whether no attention that follows at once reads the same layer.
  [[nodiscard]] bool IsLastOfStage(int attention) const;
  // T1's pages have addresses of their own, beside the staged copies.
  [[nodiscard]] bool T1HasAddresses() const { return stage != nullptr && stores.t1->MayStay(); }
  // Null: there is no such tier.
  [[nodiscard]] TierPages* PagesOf(Tier tier) const {
    if (tier == Tier::kT0) return stores.t0.get();
    if (tier == Tier::kT1) return stores.t1.get();
    return stores.t2.get();
  }
  // Looks up the addresses of pages again if any has moved. After one call in a step, threads may
  // read addresses at once.
  void Refresh() {
    if (generations != Generations()) FindPages();
  }
  [[nodiscard]] std::array<uint64_t, 3> Generations() const;
  void FindPages();
  void SetAddress(Stream* stream, size_t page) const;
  // Takes, or gives back, one page of the stream, wherever it lies.
  void TakePage(Stream* stream, const TablePage& page);
  void TakeCompressedPage(Stream* stream, size_t page) const;
  void FreePage(Stream* stream, size_t page);
  void FreeCompressedPage(Stream* stream, size_t page) const;
  [[nodiscard]] RowAddress RowAt(std::byte* page, Slot slot) const {
    return RowOfPage(page, slot, format);
  }
  [[nodiscard]] RowAddress RowAt(const Stream& stream, Slot slot) const {
    return RowAt(stream.pages[slot.page()], slot);
  }

  // How many pages of each tier and layer will be taken.
  using PageCounts = std::array<std::vector<size_t>, 3>;
  void AddPages(const GroupTable& group_table, Tier tier, size_t pages_per_stream,
                PageCounts* counts) const;
  // Makes sure that they can be taken, until EndReservation().
  Status ReservePages(const PageCounts& counts);

  // The group's table, for itself alone.
  GroupTable* DetachTable(int group);
  // Room in the stream's lists for its table's pages and so many more.
  void GrowPages(Stream* stream, size_t new_pages);
  // For pages of the full table that joined or left it, in `added` and `freed`.
  void AllocatePages(GroupTable* group_table);
  void FreePages(GroupTable* group_table);
  // Follows after FreePages() of all tables that lose pages.
  void EndFreePages();
  void FreeAll(Stream* stream);
  // For pages of the compressed table that joined or left it.
  void AllocateCompressed(GroupTable* group_table);
  void FreeCompressed(GroupTable* group_table);
  void RemoveFrom(GroupTable* group_table, std::span<const uint32_t> full_rows,
                  std::span<const uint32_t> compressed_rows);
  // Indices among all rows to those in either table, in full_index and compressed_index.
  void SplitByFormat(const GroupTable& group_table, std::span<const uint32_t> rows);
  void CompactCompressed(GroupTable* group_table, size_t max_bytes, size_t* num_bytes);

  // Waits for the writes of earlier moves before tables change: a write that fails later would
  // break the sequence.
  Status WaitForWrites();
  // The pages of T1 that the table has, and will have, may be edited.
  void AddEdits(const GroupTable& group_table, size_t new_pages, TierRows::EditSize* size) const;
  // See sequence_edits.cc.
  Status EditRows(std::span<const TableEdit> tables);
  struct StreamEdit {
    const TableEdit* table = nullptr;
    const Stream* stream = nullptr;
    size_t first_in_t0 = 0;  // its first row of T0 among those of all edits
  };
  Status EditStreams(std::span<const StreamEdit> edits);
  void FreePagesOf(std::span<const TableEdit> tables);
  [[nodiscard]] std::span<const Tier> TiersToCompact();
  // Returns the bytes copied.
  size_t SortTable(GroupTable* group_table);
  // Adds the moves that the table needs for that, at most as many bytes as are left.
  void PlanCompaction(GroupTable* group_table, Tier tier, size_t max_bytes, size_t* num_bytes,
                      std::vector<TableMove>* tables);
  Status CompactTables(std::span<const TableMove> tables, Tier tier);
  void CompactAll(size_t max_bytes, size_t* num_bytes);

  using PlannedRows = std::vector<Position> MovePlan::*;
  [[nodiscard]] MovePlan PlanMoves(const GroupTable& group_table, std::span<const RowMove> wanted);
  Status ReserveMoves(std::span<const TableMoves> all);
  [[nodiscard]] std::vector<TableMoves> PlanAll(std::span<const GroupMoves> wanted);
  Status MoveAll(std::span<const TableMoves> all);
  // Lower(): T0 to T1, then T0 and T1 to T2. Lift(): T1 to T0, then T2 to T0 and T1.
  Status Lower(std::span<const TableMoves> all);
  Status Lift(std::span<const TableMoves> all);
  // Gives back the unused part of ReservePages().
  void EndReservation();
  Status Relocate(std::span<const TableMoves> all, PlannedRows rows, Tier tier);
  Status Compress(std::span<const TableMoves> all);
  // For the streams that no row of went to T2 yet.
  Status ChooseCentres(std::span<const TableMoves> all);
  void ChooseCentre(std::span<const RowAddress> rows, Stream* stream) const;
  // After a roll-back that leaves no row in T2, so that the rows to come have the bits that they
  // have in a sequence that never went further.
  void ForgetCentres(const GroupTable& group_table);
  Status Raise(std::span<const TableMoves> all, PlannedRows rows, Tier tier);
  [[nodiscard]] size_t NumRows(std::span<const TableMoves> all, PlannedRows rows) const;
  void Account(std::span<const TableMoves> all, PlannedRows rows);
  // Why the rows are not all there; CheckSound(): or not to be had now.
  [[nodiscard]] Status CheckWhole() const;
  [[nodiscard]] Status CheckSound();
  // Makes an error that stopped a move of rows half-way one that ends the sequence.
  [[nodiscard]] static Status Lost(Status status);
  // See sequence_fork.cc.
  [[nodiscard]] PageId IdOf(const Stream& stream, Tier tier, size_t page) const;
  [[nodiscard]] uint32_t NumHolders(const Stream& stream, Tier tier, size_t page) const;
  [[nodiscard]] size_t PageBytes(Tier tier) const;
  void AddSharedBytes(const GroupTable& group_table, CacheAccounting* sum) const;
  void UnsealOwnPages();
  enum class ForkedRows {
    kAll,
    kFirst,  // those of positions before `end`
  };
  [[nodiscard]] static bool IsWorthSharing(const TokenTable& table, size_t page, ForkedRows rows);
  Status ForkRows(Impl* from, ForkedRows rows, Position end);
  Status Fork(Impl* from, ForkedRows rows, Position end);
  Status PrepareFork(Impl* from, ForkedRows rows, Position end);
  void SharePage(const Stream& other, Tier tier, size_t page, Stream* stream);
  [[nodiscard]] Status CheckStream(const Stream& stream) const;
  [[nodiscard]] std::byte* CompressedAt(const Stream& stream, Slot slot) const;
  void FindLentRows();
  [[nodiscard]] std::vector<T1Stage::Pages> PagesToStage();
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_IMPL_H_
