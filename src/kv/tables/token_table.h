// A token table numbers the rows that a set of groups holds: which slot has which position, which
// slots are free. It knows pages by their index alone; the streams of its owner hold the memory, so
// a table can be copied when groups part ways while every page stays where it is.
//
// A page index is present while at least one of its slots holds a row; it then lies in T0 or in T1,
// as long as it is present. Functions report the indices that join or leave, for the owner to
// allocate or free in every stream.
//
// A sealed page is one whose memory others may read too: its rows can go, but none comes into it or
// moves within it, until it is unsealed.
//
// Thread safety: none for changes; reading alone may be done by many threads.
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

// A page that joined or left a table.
struct TablePage {
  uint32_t index = 0;
  Tier tier = Tier::kT0;
  bool operator==(const TablePage&) const = default;
};

// A slot outside the table that holds a row while others move, for SlotMove.
inline constexpr Slot kSpareSlot(~uint32_t{0});

// All that a table is, for a file: its present pages in order, and its rows in the order of their
// slots.
struct TokenTableState {
  struct Page {
    Tier tier = Tier::kT0;  // or kT1
    uint64_t used = 0;      // bit r: row r of the page is there
  };
  std::vector<Page> pages;
  std::vector<Position> positions;     // [rows]
  std::vector<Position> last_visible;  // [rows], or empty
};

class TokenTable {
 public:
  // Returns the most bytes of a table of so many rows and pages that hides no row.
  [[nodiscard]] static size_t BytesFor(size_t num_rows, size_t num_pages);

  // Pages of a tier that taking `num_rows` slots there will add.
  [[nodiscard]] size_t PagesNeeded(size_t num_rows, Tier tier = Tier::kT0) const;
  // Makes room in the arrays for `num_rows` more rows, so that Append() allocates nothing.
  void ReserveRows(size_t num_rows);
  // Adds rows at positions first, first + 1, ... in T0: into free slots, lowest first, then into
  // new pages, whose indices are appended to `added`. REQUIRES: first > every position.
  void Append(Position first, size_t num_rows, std::vector<TablePage>* added);
  // Adds rows at these ascending positions, none of which is there yet, in `tier`.
  void Insert(std::span<const Position> positions, Tier tier, std::vector<TablePage>* added);
  // Gives the rows at these ascending indices slots in `tier`, where none of them lies, and
  // appends where each came from and goes. The owner copies the rows before it frees the pages.
  void Relocate(std::span<const uint32_t> rows, Tier tier, std::vector<SlotMove>* moves,
                std::vector<TablePage>* added, std::vector<TablePage>* freed);

  // Functions that remove rows append the indices of pages without rows to `freed`. Keeps the rows
  // at these ascending indices.
  void Retain(std::span<const uint32_t> kept, std::vector<TablePage>* freed);
  // Removes the rows at these ascending indices.
  void Remove(std::span<const uint32_t> removed, std::vector<TablePage>* freed);
  // Removes every row at position `end` and later.
  void TruncateTo(Position end, std::vector<TablePage>* freed);
  // Empties the sparsest unsealed pages of a tier into holes of its other unsealed ones, as many
  // as possible with at most `max_rows` moves in all. The owner copies the rows before it frees the
  // pages.
  void Compact(Tier tier, size_t max_rows, std::vector<SlotMove>* moves,
               std::vector<TablePage>* freed);
  // Rows that took a slot since CountStrays(), which counts the rows whose slot is none of the next
  // few after that of the row before; O(rows).
  [[nodiscard]] size_t num_slots_taken() const { return num_slots_taken_; }
  size_t CountStrays();
  // Gives the rows their slots in order of position. Appends the moves in an order in which one can
  // follow another: at most one row at a time waits in kSpareSlot. Throws before it changes
  // anything. REQUIRES: no rows in T1, no sealed page.
  void Sort(std::vector<SlotMove>* moves);

  void SetLastVisible(uint32_t index, Position last);

  // Memory for Seal() of every page there is.
  void ReserveSeals();
  // REQUIRES: present.
  void Seal(size_t page);
  void Unseal(size_t page);
  [[nodiscard]] bool IsSealed(size_t page) const {
    return page / 64 < sealed_.size() && (sealed_[page / 64] >> page % 64 & 1) != 0;
  }
  [[nodiscard]] size_t num_sealed() const { return num_sealed_; }
  // That new rows of a tier can take without another page.
  [[nodiscard]] size_t NumFreeSlots(Tier tier) const {
    return num_pages(tier) * kRowsPerPage - num_rows(tier) - num_closed_[Index(tier)];
  }

  [[nodiscard]] TokenTableState State() const;
  // Becomes that table, its pages numbered without gaps, and reports them. InvalidArgument, and
  // nothing changed, when it is no table's state. REQUIRES: empty.
  Status Restore(const TokenTableState& state, std::vector<TablePage>* added);

  [[nodiscard]] size_t num_rows() const { return slots_.size(); }
  [[nodiscard]] size_t num_pages() const { return num_pages_[0] + num_pages_[1]; }
  [[nodiscard]] size_t num_pages(Tier tier) const { return num_pages_[Index(tier)]; }
  [[nodiscard]] size_t num_rows(Tier tier) const { return num_rows_[Index(tier)]; }
  // One more than the largest page index that is present.
  [[nodiscard]] size_t page_end() const { return used_.size(); }
  [[nodiscard]] bool HasPage(size_t page) const { return page < used_.size() && used_[page] != 0; }
  // REQUIRES: present. Bit r: row r of the page is there.
  [[nodiscard]] uint64_t UsedRows(size_t page) const { return used_[page]; }
  // REQUIRES: present.
  [[nodiscard]] Tier TierOf(size_t page) const { return tier_of_[page]; }
  [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
  [[nodiscard]] std::span<const Position> positions() const { return positions_; }
  // Empty while nothing hides any row.
  [[nodiscard]] std::span<const Position> last_visible() const { return last_visible_; }
  [[nodiscard]] size_t table_bytes() const;
  // A hint that rows are removed soon.
  void FetchAhead() const;
  // Internal when positions do not ascend or slots, masks and counts disagree; O(rows), for tests.
  [[nodiscard]] Status Validate() const;

 private:
  static constexpr uint64_t kFull = ~uint64_t{0};  // of used_: a page without a free slot
  static size_t Index(Tier tier) { return static_cast<size_t>(tier); }
  [[nodiscard]] bool IsOpen(size_t page) const;
  // Whether it should be.
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
  MappedArray<Tier> tier_of_;           // [page_end]: kT0 or kT1
  MappedArray<uint64_t> sealed_;        // bit p: page p is sealed; empty while none is
  // By tier, bit p: page p is present there, not sealed, and has a free slot.
  std::array<MappedArray<uint64_t>, 2> open_;
  std::array<size_t, 2> num_pages_ = {};   // present, by tier
  std::array<size_t, 2> num_rows_ = {};    // by tier
  std::array<size_t, 2> num_closed_ = {};  // by tier: free slots of sealed pages
  size_t num_sealed_ = 0;                  // pages
  size_t num_hidden_later_ = 0;            // entries of last_visible_ other than kVisibleForEver
  size_t num_slots_taken_ = 0;             // see num_slots_taken()
};

}  // namespace ebb

#endif  // EBB_KV_TOKEN_TABLE_H_
