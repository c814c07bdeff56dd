// Maps the positions of a set of groups to slots, and lists the free slots. A table knows pages by
// index alone; the streams of its owner hold the memory, so that a table can be copied when groups
// begin to differ while every page stays where it is.
//
// A page index is present while at least one of its slots holds a row; while present, the page
// stays in one tier, which decides the place and the format of its rows: T0 and T1 hold full rows,
// T2 holds compressed ones. Functions report the indices that join or leave, so that the owner can
// allocate or free the pages in every stream.
//
// A sealed page is one whose memory other caches may read too: its rows can be removed, but no row
// is added to it or moved within it until it is unsealed.
//
// Thread safety: changes must be serialised; many threads may read at once.
#ifndef EBB_KV_TOKEN_TABLE_H_
#define EBB_KV_TOKEN_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/base/mapped_array.h"
#include "src/rows/page_ref.h"

namespace ebb {

// TablePage names a page that joined or left a table.
struct TablePage {
  uint32_t index = 0;
  Tier tier = Tier::kT0;
  bool operator==(const TablePage&) const = default;
};

// kSpareSlot names a slot outside the table in which a row waits while others move, in a SlotMove.
inline constexpr Slot kSpareSlot(~uint32_t{0});

// TokenTableState is the whole state of a table, for a file: its present pages in order, and its
// rows in the order of their slots.
struct TokenTableState {
  struct Page {
    Tier tier = Tier::kT0;  // or kT1, kT2
    uint64_t used = 0;      // bit r: row r of the page is there
  };
  std::vector<Page> pages;
  std::vector<Position> positions;     // [rows]
  std::vector<Position> last_visible;  // [rows], or empty
};

class TokenTable {
 public:
  static constexpr std::array<Tier, 3> kTiers = {Tier::kT0, Tier::kT1, Tier::kT2};

  // Returns the most bytes of a table with `num_rows` rows and `num_pages` pages, none of them
  // hidden.
  [[nodiscard]] static size_t BytesFor(size_t num_rows, size_t num_pages);

  // Returns how many pages are added if `num_rows` rows join a tier.
  [[nodiscard]] size_t PagesNeeded(size_t num_rows, Tier tier = Tier::kT0) const;
  // Allocates memory for `num_rows` more rows, so that Append() allocates nothing.
  void ReserveRows(size_t num_rows);
  // Appends rows at positions first, first + 1, ... in T0. They get the lowest free slots, then new
  // pages, whose indices are appended to `added`. REQUIRES: first > every position.
  void Append(Position first, size_t num_rows, std::vector<TablePage>* added);
  // Moves the rows at these ascending indices to slots in `tier`, and appends each move to `moves`.
  // The owner must copy the rows before it frees the pages in `freed`. REQUIRES: none of the rows
  // is in `tier`.
  void Relocate(std::span<const uint32_t> rows, Tier tier, std::vector<SlotMove>* moves,
                std::vector<TablePage>* added, std::vector<TablePage>* freed);

  // Removes the rows at these ascending indices. Like the other functions that remove rows, appends
  // the pages that become empty to `freed`.
  void Remove(std::span<const uint32_t> removed, std::vector<TablePage>* freed);
  // Removes every row at position `end` and later.
  void TruncateTo(Position end, std::vector<TablePage>* freed);
  // Compacts a tier: empties its sparsest unsealed pages into free slots of its other unsealed
  // pages, as many as `max_rows` moves allow. The owner must copy the rows before it frees the
  // pages in `freed`.
  void Compact(Tier tier, size_t max_rows, std::vector<SlotMove>* moves,
               std::vector<TablePage>* freed);
  // Returns how many rows received a new slot since CountStrays(). CountStrays() counts the rows
  // whose slot does not closely follow that of the previous row; it takes O(rows). Both ignore T2.
  [[nodiscard]] size_t num_slots_taken() const { return num_slots_taken_; }
  size_t CountStrays();
  // Sorts the rows of T0: assigns slots in order of position. Appends the moves in an executable
  // order, in which at most one row at a time waits in kSpareSlot. If it throws, nothing has
  // changed. REQUIRES: no rows in T1, no sealed page.
  void Sort(std::vector<SlotMove>* moves);

  // Hides row `index` from queries after `last`; kVisibleForEver shows it to all. REQUIRES: a row
  // that is hidden is not in T2.
  void SetLastVisible(uint32_t index, Position last);

  // Allocates memory, so that Seal() cannot fail for any present page.
  void ReserveSeals();
  // Seals a page. REQUIRES: the page is present.
  void Seal(size_t page);
  void Unseal(size_t page);
  [[nodiscard]] bool IsSealed(size_t page) const {
    return page / 64 < sealed_.size() && (sealed_[page / 64] >> page % 64 & 1) != 0;
  }
  [[nodiscard]] size_t num_sealed() const { return num_sealed_; }
  // Returns how many rows can join a tier without another page.
  [[nodiscard]] size_t NumFreeSlots(Tier tier) const {
    return num_pages(tier) * kRowsPerPage - num_rows(tier) - num_closed_[Index(tier)];
  }

  [[nodiscard]] TokenTableState State() const;
  // Restores a saved table, renumbering its pages without gaps, and appends them to `added`.
  // Errors: InvalidArgument if `state` is not the state of a table; nothing has changed then.
  // REQUIRES: the table is empty.
  Status Restore(const TokenTableState& state, std::vector<TablePage>* added);

  [[nodiscard]] size_t num_rows() const { return slots_.size(); }
  // Returns the rows of T0 and T1.
  [[nodiscard]] size_t num_full_rows() const { return num_rows_[0] + num_rows_[1]; }
  [[nodiscard]] size_t num_pages() const { return num_pages_[0] + num_pages_[1] + num_pages_[2]; }
  [[nodiscard]] size_t num_pages(Tier tier) const { return num_pages_[Index(tier)]; }
  [[nodiscard]] size_t num_rows(Tier tier) const { return num_rows_[Index(tier)]; }
  // Returns one more than the largest index of a present page.
  [[nodiscard]] size_t page_end() const { return used_.size(); }
  [[nodiscard]] bool HasPage(size_t page) const { return page < used_.size() && used_[page] != 0; }
  // Returns whether the page is present and in this tier.
  [[nodiscard]] bool HasPage(size_t page, Tier tier) const {
    return HasPage(page) && tier_of_[page] == tier;
  }
  // Returns the rows of the page that exist, as a mask: bit r is row r. REQUIRES: the page is
  // present.
  [[nodiscard]] uint64_t UsedRows(size_t page) const { return used_[page]; }
  // Returns the tier of a page. REQUIRES: the page is present.
  [[nodiscard]] Tier TierOf(size_t page) const { return tier_of_[page]; }
  [[nodiscard]] Tier TierOf(Slot slot) const { return tier_of_[slot.page()]; }
  [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
  [[nodiscard]] std::span<const Position> positions() const { return positions_; }
  // Returns the last position to which each row is visible; empty while no row is hidden from any.
  [[nodiscard]] std::span<const Position> last_visible() const { return last_visible_; }
  [[nodiscard]] size_t table_bytes() const;
  // Prefetches the arrays, as a hint that rows are removed soon.
  void FetchAhead() const;
  // Returns Internal if positions do not ascend, or if slots, masks and counts disagree, for tests;
  // takes O(rows).
  [[nodiscard]] Status Validate() const;

 private:
  static constexpr uint64_t kFull = ~uint64_t{0};  // of used_: a page without a free slot
  static size_t Index(Tier tier) { return static_cast<size_t>(tier); }
  [[nodiscard]] bool IsOpen(size_t page) const;
  // Returns whether the page should be marked as open.
  [[nodiscard]] bool HasOpenSlot(size_t page) const {
    return used_[page] != 0 && used_[page] != kFull && !IsSealed(page);
  }
  void SetSealed(size_t page, bool sealed);
  void SetOpen(size_t page, bool open);
  Slot TakeSlot(Tier tier, std::vector<TablePage>* added);
  size_t AddPage(Tier tier, std::vector<TablePage>* added);
  void FreeSlot(Slot slot, std::vector<TablePage>* freed);
  void FreeRow(uint32_t index, std::vector<TablePage>* freed);
  void ShrinkArrays();
  void RenameSlots(std::span<const SlotMove> moves);

  MappedArray<Slot> slots_;             // [num_rows], in order of position
  MappedArray<Position> positions_;     // [num_rows], strictly ascending
  MappedArray<Position> last_visible_;  // [num_rows], or empty
  MappedArray<uint64_t> used_;          // [page_end]; bit r of page p: slot 64 p + r holds a row
  MappedArray<Tier> tier_of_;           // [page_end]
  MappedArray<uint64_t> sealed_;        // bit p: page p is sealed; empty while none is
  // Marks, by tier, the pages that are present, not sealed, and have a free slot; bit p is page p.
  std::array<MappedArray<uint64_t>, kTiers.size()> open_;
  std::array<size_t, kTiers.size()> num_pages_ = {};   // present, by tier
  std::array<size_t, kTiers.size()> num_rows_ = {};    // by tier
  std::array<size_t, kTiers.size()> num_closed_ = {};  // by tier: free slots of sealed pages
  size_t num_sealed_ = 0;                              // pages
  size_t num_hidden_later_ = 0;  // entries of last_visible_ other than kVisibleForEver
  size_t num_slots_taken_ = 0;   // see num_slots_taken()
};

}  // namespace ebb

#endif  // EBB_KV_TOKEN_TABLE_H_
