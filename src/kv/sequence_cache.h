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
// Invariants: (1) a table's visible list is strictly ascending in position; (2) a slot is in the
// visible list of a table or in its free list, never both; (3) every page of a table exists in all
// streams of its groups; (4) pages * kRowsPerPage = visible + free slots, of which those of sealed
// pages are not taken; (5) a position is in the full or in the compressed table, never in both.
//
// Thread safety: none for changes, which happen between steps, but as BeginRemoval() says; views
// may be read by many threads during a step, and row writes to distinct (layer, kv head) may run in
// parallel.
#ifndef EBB_KV_SEQUENCE_CACHE_H_
#define EBB_KV_SEQUENCE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ebb/report.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/kv/row_move.h"
#include "src/kv/token_table.h"
#include "src/rows/cache_stores.h"
#include "src/rows/row_address.h"

namespace ebb {

class SequenceCache {
 public:
  SequenceCache(const ModelShape& shape, const PageFormat& format, Granularity granularity,
                const CacheStores& stores);
  ~SequenceCache();
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;

  // Adds `num_tokens` rows at positions first..first+num_tokens-1 to every group; their contents
  // are unspecified until written. Errors, after which nothing has changed: ResourceExhausted (T0
  // has no room; no memory for the tables), InvalidArgument (`first` is not greater than every
  // visible position), that of CheckWhole() once rows were lost, that of T1's file where earlier
  // moves cannot be written to it.
  Status Append(Position first, int num_tokens);
  // Takes the rows of `from`, in the same slots. Pages that are nearly full are shared from now on,
  // until one of the two gives them up; the others are copied. Fails when a tier has no room or no
  // memory (ResourceExhausted) or a file cannot be read or written; then `from` has all its rows,
  // and this cache is only good for being destroyed. REQUIRES: this cache never had rows; shape,
  // format, granularity and stores are those of `from`.
  Status ForkFrom(SequenceCache* from);
  // As ForkFrom(), of the rows at positions before `end` alone. Only full pages are shared, so that
  // neither cache takes more pages than it would by itself.
  Status ForkFirstRows(SequenceCache* from, Position end);
  // So many of the first positions have a row in T0 or T1 in every group, or in every group without
  // a window.
  [[nodiscard]] size_t NumFirstRows(bool with_windows = true) const;
  // Keeps pages of T0 for this cache; see Arena::SetFloor().
  Status SetT0Floor(uint64_t num_bytes);
  // Copies the pages of T0 that other caches hold too, so that the contents of rows may change.
  // Fails, and changes nothing, when T0 has no room (ResourceExhausted).
  Status OwnPages();
  // Why rows were lost for good, if any were: a move that stopped half-way.
  [[nodiscard]] Status CheckWhole() const;
  // The tokens that T0's cap leaves room for, while no other sequence takes it; a little less if
  // the groups differ.
  [[nodiscard]] size_t RoomForTokens() const;
  // Rows are named by their index in order of position, whichever tier they lie in.
  // Keeps only the rows at these ascending indices of the group. For tests and benchmarks: policies
  // name the rows that go.
  void Retain(int group, std::span<const uint32_t> kept);
  // Removes the rows at these ascending indices. Cheap when few.
  void Remove(int group, std::span<const uint32_t> removed);
  // Rows that left their tables, whose pages are still to be freed.
  struct Removal {
    size_t num_rows = 0;                          // (layer, kv head, token) triples
    std::vector<std::pair<int, uint32_t>> pages;  // without rows: group, index
    std::vector<TablePage> of_group;              // work space
  };
  // Remove() in two parts. Several threads may begin at once, each with groups and a Removal of its
  // own; before anything else is called, every Removal is ended on one thread, which empties it.
  // Adds to `removal`. Returns false, and has changed nothing, for a group that shares its table or
  // has rows elsewhere than in T0; so it has when it throws std::bad_alloc.
  [[nodiscard]] bool BeginRemoval(int group, std::span<const uint32_t> removed, Removal* removal);
  void EndRemoval(Removal* removal);
  // A hint that rows of `group` are removed soon, and then those of the next groups: fetches what
  // Remove() reads.
  void FetchForRemoval(int group) const;
  // Brings these rows to T0, T1 or T2; a row that is there already stays. Rows that leave T0 make
  // room for those that come there. Fails, and changes nothing, when a tier has no room
  // (ResourceExhausted) or does not exist (InvalidArgument); if the system refuses memory, or a
  // file refuses an earlier write, some rows may have moved. A file that fails while rows are
  // between tiers leaves the cache broken: this and every later Append() returns that error. A file
  // is also written while the next step runs: when that fails nothing is lost; the next Move() or
  // EndStaging() that needs those rows tries again and returns the error. REQUIRES: no group is
  // named twice.
  Status Move(std::span<const GroupMoves> moves);
  Status Move(int group, std::span<const RowMove> rows);
  // Removes every row at `end` and later, in all groups. Never revives removed rows.
  void TruncateTo(Position end);
  // For rows that a step of several tokens hides from its later ones: the last position that sees
  // row `index`; kVisibleForEver takes that back.
  void SetLastVisible(int group, uint32_t index, Position last);
  // Moves rows out of sparse pages into holes of others while that frees whole pages, copying at
  // most `max_bytes`. Returns the bytes copied. Only the slots of rows and the pages change. Pages
  // of T1 stay as they are while rows that were moved there cannot be written.
  size_t Compact(size_t max_bytes);
  // Puts the rows of tables in order of position where many of them are not, so that who reads the
  // visible list reads each page in order. Only where all full rows lie in T0 and in the one
  // memory. Begins no other table once it copied `max_bytes`; a table's rows are put in order in
  // all its streams at once. Returns the bytes copied; only the slots of rows change.
  size_t Sort(size_t max_bytes);

  // The length of a stream's list of pages, which its slots index and which may have gaps; and the
  // greatest length of any stream's.
  [[nodiscard]] size_t NumPages(int layer, int kv_head) const;
  [[nodiscard]] size_t most_pages() const;
  // Looks up where pages lie that have moved: threads may call View() and Row() at once from then
  // on, until rows or pages change. BeginStaging() does it too.
  void FindAddresses();
  // The rows of T0 and T1. Those of a T1 that is staged have an address from StageLayer() on, until
  // EndLayer(), or until the next layer but one is staged. In a step that reads lent rows, pages
  // and slots name the lender's too, and are not those of Row().
  [[nodiscard]] RowsView View(int layer, int kv_head) const;
  [[nodiscard]] CompressedRows Compressed(int layer, int kv_head) const;
  // Among all rows of the stream, those of View() and those of Compressed(); both empty while T2
  // is.
  [[nodiscard]] std::span<const uint32_t> FullRows(int layer, int kv_head) const;
  [[nodiscard]] std::span<const uint32_t> CompressedRowIndices(int layer, int kv_head) const;

  // Reading a T1 that is staged (src/rows/tier_rows.h) attention after attention, a layer ahead.
  // BeginStaging() before a step makes room and starts; StageLayer() is called for every part of
  // an attention before it reads its layer's rows, and returns once they are there;
  // ReleaseLayer() by part 0 when the work that reads them was launched, EndLayer(), which need not
  // be called, once all parts have read them; EndStaging() tells whether all reads went well.
  // EndStaging() follows every BeginStaging(), also one that failed; or the next BeginStaging()
  // gives up reads under way. Where T1 allows it, its rows may also be left where they are: then
  // RowsIn() tells them apart.
  enum class T1Reading { kStaged, kInPlace };
  Status BeginStaging(T1Reading reading = T1Reading::kStaged);
  void StageLayer(int attention, int part);
  void ReleaseLayer(int attention);
  void EndLayer(int attention);
  Status EndStaging();
  [[nodiscard]] bool ReadsInPlace() const;  // in this step
  struct RowsOfTier {
    RowsView view;                      // without positions
    std::span<const uint32_t> indices;  // among all rows of the stream
  };
  // REQUIRES: ReadsInPlace(): BeginStaging(kInPlace) made these lists.
  [[nodiscard]] RowsOfTier RowsIn(Tier tier, int layer, int kv_head) const;
  [[nodiscard]] size_t NumRowsInT1(int layer, int kv_head) const;
  // Excludes pages that the last step read from the lender's T0.
  [[nodiscard]] size_t NumPagesInT1(int layer, int kv_head) const;
  // From now on staged steps read pages of T1 whose rows all lie in the lender's T0 there. Only
  // while every group of either cache has the same rows, and the lender has no T2, from which rows
  // come back changed.
  // REQUIRES: the lender has the same shape and format, outlives this cache, and has the same in a
  // row as this cache's T1 has in the row of that position.
  void BorrowFrom(const SequenceCache& lender);
  // Bytes of T1 that the last step read, wherever T1 lies.
  [[nodiscard]] size_t t1_bytes_read() const;

  // The address of key and value of row `index` of View(), for writing. REQUIRES: the row lies in
  // T0 (or in a T1 that is not staged).
  [[nodiscard]] RowAddress Row(int layer, int kv_head, uint32_t index);

  // The positions of all rows of the group, ascending.
  [[nodiscard]] std::span<const Position> positions(int group) const;
  // [rows of the group]; valid until the next call on the cache.
  [[nodiscard]] std::span<const Tier> tiers(int group);
  [[nodiscard]] size_t num_full_rows(int group) const;
  [[nodiscard]] bool HasT1() const;
  [[nodiscard]] bool HasTiers() const;           // may hold rows outside T0
  [[nodiscard]] bool HasCompressedRows() const;  // holds rows in T2
  [[nodiscard]] int GroupOf(int layer, int kv_head) const;
  struct StreamId {
    int layer, kv_head;
  };
  // Layer by layer and head by head.
  [[nodiscard]] std::vector<StreamId> StreamsOf(int group) const;
  [[nodiscard]] int num_groups() const;
  [[nodiscard]] int num_streams() const;  // (layer, kv head) pairs
  [[nodiscard]] int NumStreamsOf(int group) const;
  [[nodiscard]] int NumKvHeads(int layer) const;
  // In tokens. Rows at positions up to next - window, next being the next query's position, are
  // seen no more, and may be removed. 0: no window.
  [[nodiscard]] int WindowOf(int group) const;
  [[nodiscard]] Granularity granularity() const;
  [[nodiscard]] const PageFormat& format() const;
  // Largest visible list of any group, which the context and the work buffers must hold.
  [[nodiscard]] size_t max_rows() const;
  [[nodiscard]] CacheAccounting accounting() const;
  // The bytes of the pages in a tier.
  [[nodiscard]] size_t page_bytes(Tier tier) const;
  // The moves so far, the time that steps waited for them, and the time that steps waited in
  // StageLayer(): cheaper than accounting().
  [[nodiscard]] const MoveAccounting& moves() const;
  [[nodiscard]] double stage_wait_seconds() const;
  // Internal, naming the table, when an invariant does not hold; O(rows), for tests.
  [[nodiscard]] Status Validate() const;

 private:
  friend struct SequenceState;  // to and from a file
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_H_
