// Holds the cache of one sequence: for every (layer, kv head) a stream of pages, and for every
// group a token table that says which slots hold which positions. Keys carry their positions by
// RoPE, so the order of slots does not matter: free slots are reused, and half-empty pages are
// compacted. Since memory is read faster in its own order, rows are sorted from time to time.
//
// A page lies in T0, in T1 (memory or a file) or, in another format, in T2. A group has one table
// of the rows of all tiers. Kernels read the full rows (T0 and T1) as one list in order of
// position, so a row may lie in either without changing any computed bit, and the rows of T2 as
// another.
//
// Groups share one table until they differ: a removal in some of a table's groups copies the table.
//
// Caches may share pages (ForkFrom()). All of them read the rows of a shared page, and none writes
// them; a row that one cache removes stays in the others.
//
// Parts: GroupTables knows which rows exist, PageMap their pages; RowMover moves rows between
// tiers, Compactor and RowSorter within a tier; T1Reader makes rows of T1 readable during a step,
// and RowViews shows rows to the step.
//
// Invariants: (1) a table's visible list is strictly ascending in position; (2) a slot is in the
// visible list of a table or in its free list, never both; (3) every page of a table exists in all
// streams of its groups; (4) pages * kRowsPerPage = visible + free slots; free slots of sealed
// pages are not reused.
//
// Thread safety: changes happen between steps, on one thread, except through Removal. During a step
// many threads may read views, and rows of distinct (layer, kv head) pairs may be written in
// parallel.
#ifndef EBB_KV_SEQUENCE_CACHE_H_
#define EBB_KV_SEQUENCE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ebb/report.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/kv/cache_layout.h"
#include "src/kv/row_move.h"
#include "src/kv/row_views.h"
#include "src/kv/t1_reader.h"
#include "src/kv/tables/group_tables.h"
#include "src/kv/tables/token_table.h"
#include "src/rows/cache_stores.h"

namespace ebb {

class SequenceCache;

// StagedStep is a step's access to the rows of T1, attention by attention. If T1 is staged
// (src/rows/tier_rows.h), it reads one layer ahead. End() finishes it and returns errors; the
// destructor finishes it without. REQUIRES: the cache outlives it and has no other StagedStep at
// the same time.
class StagedStep {
 public:
  StagedStep(StagedStep&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  StagedStep& operator=(StagedStep&& other) = delete;
  ~StagedStep();

  // Waits until the rows that an attention reads are staged. Every thread calls it for its part of
  // the attention before it reads rows.
  void StageLayer(int attention, int part) const;
  // BeginSelection() begins the choice of rows for a layer, in a step that reads selected rows
  // (T1Reading::kSelected); other steps ignore it. Part 0 of each attention calls it, then
  // WantRows() for every kv head with ranges of RowViews::View() (no range: all rows), and then
  // ReadWantedRows(). Before that, ForeseeRows() may name rows that the next step will probably
  // want; they are prefetched during it.
  void BeginSelection() const;
  // Sets the addresses of all loaded pages of the layer to null. A device's list has an address for
  // every page and reads zeros at null, so that pages for which no WantRows() follows read as
  // zeros. Called between BeginSelection() and WantRows().
  void ClearAddresses(int layer) const;
  void WantRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ForeseeRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ReadWantedRows() const;
  // Notifies the cache that the work that reads the rows was launched. Called for part 0.
  void ReleaseLayer(int attention) const;
  // Notifies the cache that all parts have read the rows. Called for part 0; optional.
  void EndLayer(int attention) const;
  // Ends the step. Returns the first error of its reads, or of the writes of earlier moves.
  [[nodiscard]] Status End();

 private:
  friend class SequenceCache;
  explicit StagedStep(SequenceCache* cache) : cache_(cache) {}

  SequenceCache* cache_;  // null: it ended, or moved elsewhere
};

class SequenceCache {
 public:
  SequenceCache(const ModelShape& shape, const PageFormat& format, Granularity granularity,
                const CacheStores& stores);
  ~SequenceCache();
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;

  // Appends rows at positions first..first+num_tokens-1 to every group; their contents are
  // unspecified until written. Errors, after which nothing has changed: T0Full; OutOfMemory;
  // InvalidArgument (`first` is not greater than every visible position); that of CheckWhole()
  // after rows were lost; that of T1's file if earlier moves cannot be written to it.
  Status Append(Position first, int num_tokens);
  // Copies the rows of `from` into the same slots. Nearly full pages are shared from then on until
  // one of the caches releases them; the others are copied. With an `end`, copies only rows at
  // positions before it and shares only full pages, so that neither cache uses more pages than it
  // would by itself. Errors: a tier is full, OutOfMemory, or those of a file; then `from` is
  // unchanged, and this cache can only be destroyed. REQUIRES: this cache never had rows, and has
  // the shape, format, granularity and stores of `from`.
  Status ForkFrom(SequenceCache* from, std::optional<Position> end = std::nullopt);
  // Reserves pages of T0 for this cache; see Arena::SetFloor().
  Status SetT0Floor(uint64_t num_bytes);
  // Copies the pages of T0 that other caches share, so that the contents of rows may change.
  // Errors: T0Full, after which nothing has changed.
  Status OwnPages();
  // Returns the error of a move that stopped half-way and lost rows for good; OK if none were lost.
  [[nodiscard]] Status CheckWhole() const;
  // Returns how many tokens fit under T0's cap as long as no other sequence uses its room; slightly
  // too few if the groups differ.
  [[nodiscard]] size_t RoomForTokens() const;
  // The functions below name a row by its index among all rows of its group, in order of position,
  // over all tiers.

  // Removes the rows at these ascending indices; cheap for few rows.
  void Remove(int group, std::span<const uint32_t> removed);
  // Removal removes rows on several threads at once, each with its own groups and its own Removal.
  // Rows leave their tables at once; the destructor frees pages. All Removals must be destroyed,
  // one after another on one thread, before any other call to the cache.
  class Removal {
   public:
    // Lists keeps the memory of its lists from one removal to the next.
    struct Lists {
      std::vector<std::pair<int, uint32_t>> pages;  // without rows: group, index
      std::vector<TablePage> of_group;
    };
    // Begins a removal. REQUIRES: both arguments outlive it.
    Removal(SequenceCache* cache, Lists* lists);
    ~Removal();
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;

    // Removes the rows at these ascending indices. Returns false, and changes nothing, if the group
    // shares its table or has rows outside T0. If it throws std::bad_alloc, nothing has changed.
    [[nodiscard]] bool Remove(int group, std::span<const uint32_t> removed);
    // Returns the number of removed (layer, kv head, token) triples.
    [[nodiscard]] size_t num_rows() const { return num_rows_; }

   private:
    SequenceCache* const cache_;
    Lists* const lists_;
    size_t num_rows_ = 0;
  };
  // Moves rows to T0, T1 or T2; a row that is there already stays. Rows that leave T0 make room for
  // rows that move to T0. Errors:
  // - T0Full or T1Full, or InvalidArgument (there is no such tier): nothing has changed.
  // - OutOfMemory, or the error of an earlier write to the file: some rows may have moved.
  // - the error of a file that failed while rows were between tiers: the cache is broken, and every
  //   later Append() returns this error.
  // A file is also written while the next step runs. If that fails nothing is lost: the next Move()
  // or StagedStep::End() that needs those rows tries again and returns the error. REQUIRES: each
  // group is named at most once.
  Status Move(std::span<const GroupMoves> moves);
  Status Move(int group, std::span<const RowMove> rows) {
    const GroupMoves moves = {.group = group, .rows = rows};
    return Move({&moves, 1});
  }
  // Removes every row at `end` and later, in all groups. Does not restore removed rows.
  void TruncateTo(Position end);
  // Hides row `index` from queries after position `last`, for a step of several tokens in which the
  // row expires; kVisibleForEver makes it visible again. REQUIRES: the row is not in T2.
  void SetLastVisible(int group, uint32_t index, Position last);
  // Compacts: moves rows out of sparse pages into free slots of other pages as long as that frees
  // whole pages and copies at most `max_bytes`. Returns the bytes copied. Changes only slots and
  // pages. Skips pages of T1 while rows that were moved there cannot be written.
  size_t Compact(size_t max_bytes);
  // Sorts the rows of tables by position if many are out of order, so that a reader of the visible
  // list reads each page in order. Skips tables unless all full rows lie in T0 in one memory.
  // Begins no further table after `max_bytes` were copied; a table is sorted in all its streams at
  // once. Returns the bytes copied. Changes only slots.
  size_t Sort(size_t max_bytes);

  // Looks up the addresses of pages that other caches have moved. The caller must call it before it
  // uses addresses of views(); they are valid until rows change or pages move. Append() and
  // StageStep() call it too.
  void FindAddresses();
  [[nodiscard]] const RowViews& views() const;

  // Begins a step: allocates memory for the rows of T1 that it reads, and starts to read them.
  // kInPlace: RowViews::RowsIn() returns the rows of T1 separately if T1 allows reading in place.
  // Errors: OutOfMemory, those of a file.
  [[nodiscard]] Result<StagedStep> StageStep(T1Reading reading = T1Reading::kStaged);
  // Sets how many pages of T1 stay in memory between later steps that read selected rows.
  void SetCachedT1(const CachedT1& cached);
  // Frees the memory of those pages until the next step.
  void ReleaseCachedT1();
  // Lets later staged steps read pages of T1 from `lender` if all rows of the page lie in its T0.
  // This happens only while all groups of a cache have the same rows, and while the lender has no
  // T2, which would return rows changed. REQUIRES: the lender has the same shape and format,
  // outlives this cache, and its rows equal this cache's T1 rows of the same positions.
  void BorrowFrom(SequenceCache* lender);
  // Returns the reader of T1, which counts the bytes that steps read and the time that they waited.
  [[nodiscard]] const T1Reader& t1_reader() const;

  // Returns the tables of rows of every group, and of the pages that they occupy.
  [[nodiscard]] const GroupTables& tables() const;
  // Returns the positions of all rows of the group, ascending.
  [[nodiscard]] std::span<const Position> positions(int group) const;
  // Returns the tier of each row of the group; valid until the next call on the cache.
  [[nodiscard]] std::span<const Tier> tiers(int group);
  [[nodiscard]] bool HasTier(Tier tier) const;
  [[nodiscard]] const CacheLayout& layout() const;
  // Returns the most bytes of the tables of a cache with this layout whose groups have `of_group`
  // rows and pages each. `are_alike`: all groups have the same rows and share one table.
  [[nodiscard]] static size_t TableBytesFor(const CacheLayout& layout, const TableSize& of_group,
                                            bool are_alike);
  [[nodiscard]] CacheAccounting accounting() const;
  // Returns the bytes of a page in a tier.
  [[nodiscard]] size_t page_bytes(Tier tier) const;
  // Returns the moves so far, and the time that steps waited for them; cheaper than accounting().
  [[nodiscard]] const MoveAccounting& moves() const;
  // Returns Internal, naming the table, if an invariant does not hold, for tests; takes O(rows).
  // Checks addresses only if no page has moved since FindAddresses().
  [[nodiscard]] Status Validate() const;

 private:
  friend struct SequenceState;  // to and from a file
  friend class StagedStep;
  Status EndStaging();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_H_
