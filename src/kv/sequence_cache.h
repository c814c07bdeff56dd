// The cache of one sequence: for every (layer, kv head) a stream of pages, for every group a token
// table that says which slots hold which positions. Rows carry their position through RoPE, so
// the order of their slots means nothing: freed slots are used again, half-empty pages are
// compacted away. But memory is read faster in its own order, so rows are put in order now and
// then.
//
// A page lies in T0, in T1 (memory or a file) or, in another format, in T2. Rows of T0 and T1 form
// one visible list in order of position, so which of the two a row lies in changes nothing that is
// computed; rows of T2 form a list of their own.
//
// Groups of a granularity share one table until they differ; a table is copied when a removal
// touches some of its groups only.
//
// Caches may hold pages together (ForkFrom()). Rows of such a page are read by all of them and
// written by none; what one of them removes, the others keep.
//
// Parts: GroupTables knows which rows there are, PageMap their pages; RowMover moves rows between
// tiers, Compactor and RowSorter within one; T1Reader makes rows of T1 readable during a step, and
// RowViews shows rows to it.
//
// Invariants: (1) a table's visible list is strictly ascending in position; (2) a slot is in the
// visible list of a table or in its free list, never both; (3) every page of a table exists in all
// streams of its groups; (4) pages * kRowsPerPage = visible + free slots, of which those of sealed
// pages are not taken; (5) a position is in the full or in the compressed table, never in both.
//
// Thread safety: none for changes, which happen between steps, except by a Removal; views
// may be read by many threads during a step, and row writes to distinct (layer, kv head) may run in
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

// A step's access to the rows of T1, attention after attention. A T1 that is staged
// (src/rows/tier_rows.h) is read a layer ahead. Ends in End(), which reports errors, or in its
// destructor, which does not; the cache outlives it. REQUIRES: a cache has one at a time.
class StagedStep {
 public:
  StagedStep(StagedStep&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)) {}
  StagedStep& operator=(StagedStep&& other) = delete;
  ~StagedStep();

  // Returns once the rows that an attention reads are there. Called for every part of the
  // attention, by the thread of that part, before it reads them.
  void StageLayer(int attention, int part) const;
  // In a step that reads selected rows (T1Reading::kSelected), part 0 of each attention begins a
  // selection, names the rows that it reads of every kv head, by ranges of RowViews::View(), and
  // then reads them; without a range all rows are named. Rows that the next step will probably want
  // are foreseen before, and are read ahead in it. Other steps ignore it.
  void BeginSelection() const;
  // Between BeginSelection() and WantRows(): clears the addresses of the layer's pages that are
  // loaded, so that a device, which lists every page, reads zeros in place of those that the
  // attention does not name.
  void ClearAddresses(int layer) const;
  void WantRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ForeseeRows(int layer, int kv_head, std::span<const RowRange> ranges) const;
  void ReadWantedRows() const;
  // The work that reads the rows was launched. For part 0.
  void ReleaseLayer(int attention) const;
  // All parts have read the rows. For part 0; it need not be called.
  void EndLayer(int attention) const;
  // Returns the first error of the step's reads, or of the writes of earlier moves.
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

  // Adds `num_tokens` rows at positions first..first+num_tokens-1 to every group; their contents
  // are unspecified until written. Errors, after which nothing has changed: T0Full;
  // OutOfMemory, InvalidArgument (`first` is not greater than every
  // visible position), that of CheckWhole() once rows were lost, that of T1's file where earlier
  // moves cannot be written to it.
  Status Append(Position first, int num_tokens);
  // Takes the rows of `from`, in the same slots. Pages that are nearly full are shared from now on,
  // until one of the two gives them up; the others are copied. With an `end` takes the rows at
  // positions before it alone, and shares only full pages, so that neither cache takes more pages
  // than it would by itself. Fails when a tier has no room or no memory (OutOfMemory) or a file
  // cannot be read or written; then `from` has all its rows, and this cache is only good for being
  // destroyed. REQUIRES: this cache never had rows; shape, format, granularity and stores are those
  // of `from`.
  Status ForkFrom(SequenceCache* from, std::optional<Position> end = std::nullopt);
  // Keeps pages of T0 for this cache; see Arena::SetFloor().
  Status SetT0Floor(uint64_t num_bytes);
  // Copies the pages of T0 that other caches hold too, so that the contents of rows may change.
  // Fails, and changes nothing, when T0 has no room (T0Full).
  Status OwnPages();
  // Why rows were lost for good, if any were: a move that stopped half-way.
  [[nodiscard]] Status CheckWhole() const;
  // The tokens that T0's cap leaves room for, while no other sequence takes it; a little less if
  // the groups differ.
  [[nodiscard]] size_t RoomForTokens() const;
  // An index names a row of a group by its place in order of position, whichever tier it lies in.

  // Removes the rows at these ascending indices. Cheap when few.
  void Remove(int group, std::span<const uint32_t> removed);
  // Remove() for several threads at once, each with groups and a Removal of its own: rows leave
  // their tables at once, pages are freed when the Removal ends. Before any other call to the cache
  // every Removal is destroyed, one after another, on one thread.
  class Removal {
   public:
    // Lists that keep their memory from one removal to the next.
    struct Lists {
      std::vector<std::pair<int, uint32_t>> pages;  // without rows: group, index
      std::vector<TablePage> of_group;
    };
    // Both outlive it.
    Removal(SequenceCache* cache, Lists* lists);
    ~Removal();
    Removal(const Removal&) = delete;
    Removal& operator=(const Removal&) = delete;

    // Removes the rows at these ascending indices. Returns false, and changes nothing, for a group
    // that shares its table or has rows outside T0. If it throws std::bad_alloc nothing changes.
    [[nodiscard]] bool Remove(int group, std::span<const uint32_t> removed);
    // (layer, kv head, token) triples.
    [[nodiscard]] size_t num_rows() const { return num_rows_; }

   private:
    SequenceCache* const cache_;
    Lists* const lists_;
    size_t num_rows_ = 0;
  };
  // Brings these rows to T0, T1 or T2; a row that is there already stays. Rows that leave T0 make
  // room for those that come there. Fails, and changes nothing, when a tier has no room
  // (T0Full, T1Full) or does not exist (InvalidArgument); if the system refuses memory, or a
  // file refuses an earlier write, some rows may have moved. A file that fails while rows are
  // between tiers leaves the cache broken: this and every later Append() returns that error. A file
  // is also written while the next step runs: when that fails nothing is lost; the next Move() or
  // StagedStep::End() that needs those rows tries again and returns the error. REQUIRES: no group
  // is named twice.
  Status Move(std::span<const GroupMoves> moves);
  Status Move(int group, std::span<const RowMove> rows) {
    const GroupMoves moves = {.group = group, .rows = rows};
    return Move({&moves, 1});
  }
  // Removes every row at `end` and later, in all groups. Never revives removed rows.
  void TruncateTo(Position end);
  // For rows that a step of several tokens hides from its later ones: the last position that sees
  // row `index`; kVisibleForEver takes that back.
  void SetLastVisible(int group, uint32_t index, Position last);
  // Moves rows out of sparse pages into holes of others while that frees whole pages, copying at
  // most `max_bytes`. Returns the bytes copied. Only the slots of rows and the pages change. Pages
  // of T1 stay as they are while rows that were moved there cannot be written.
  size_t Compact(size_t max_bytes);
  // Puts the rows of tables in order of position where many of them are not, so that a reader of
  // the visible list reads each page in order. Only where all full rows lie in T0 and in the one
  // memory. Begins no other table once it copied `max_bytes`; a table's rows are put in order in
  // all its streams at once. Returns the bytes copied; only the slots of rows change.
  size_t Sort(size_t max_bytes);

  // Looks up where pages lie that other caches have moved. Comes before addresses of
  // views() are used, and holds until rows change or pages move; Append() and StageStep() do it
  // too.
  void FindAddresses();
  [[nodiscard]] const RowViews& views() const;

  // Makes room for the rows of T1 that the next step reads and starts to read them. Errors:
  // OutOfMemory, those of a file. kInPlace: RowViews::RowsIn() tells rows of T1 apart where
  // T1 allows to read them in place.
  [[nodiscard]] Result<StagedStep> StageStep(T1Reading reading = T1Reading::kStaged);
  // From now on steps that read selected rows keep so many pages of T1 where they read them.
  void SetCachedT1(const CachedT1& cached);
  // Gives their memory back until the next step.
  void ReleaseCachedT1();
  // From now on staged steps read pages of T1 whose rows all lie in the lender's T0 there. Only
  // while every group of either cache has the same rows, and the lender has no T2, from which rows
  // come back changed.
  // REQUIRES: the lender has the same shape and format, outlives this cache, and has the same in a
  // row as this cache's T1 has in the row of that position.
  void BorrowFrom(SequenceCache* lender);
  // The bytes that steps read of T1, and the time that they waited for it.
  [[nodiscard]] const T1Reader& t1_reader() const;

  // The rows of every group, and the pages that they take.
  [[nodiscard]] const GroupTables& tables() const;
  // The positions of all rows of the group, ascending.
  [[nodiscard]] std::span<const Position> positions(int group) const;
  // [rows of the group]; valid until the next call on the cache.
  [[nodiscard]] std::span<const Tier> tiers(int group);
  [[nodiscard]] bool HasTier(Tier tier) const;
  [[nodiscard]] const CacheLayout& layout() const;
  // Returns the most bytes of the tables of a cache whose groups, of `layout`, have so many rows
  // each; `are_alike`: the same rows, so that they share one table.
  [[nodiscard]] static size_t TableBytesFor(const CacheLayout& layout, const TableSize& of_group,
                                            bool are_alike);
  [[nodiscard]] CacheAccounting accounting() const;
  // The bytes of the pages in a tier.
  [[nodiscard]] size_t page_bytes(Tier tier) const;
  // The moves so far, and the time that steps waited for them: cheaper than accounting().
  [[nodiscard]] const MoveAccounting& moves() const;
  // Internal, naming the table, when an invariant does not hold; O(rows), for tests. Addresses are
  // checked unless pages have moved since FindAddresses().
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
