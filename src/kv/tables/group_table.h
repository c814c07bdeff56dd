// Holds the rows of groups that have the same rows.
//
// One TokenTable has the rows of all tiers. A kernel reads rows of one format at a time, so while
// T2 has rows, the table also lists the full rows (T0 and T1) and the compressed ones (T2)
// separately; while T2 has none, all rows are full and nothing is listed twice.
#ifndef EBB_KV_GROUP_TABLE_H_
#define EBB_KV_GROUP_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/kv/tables/token_table.h"

namespace ebb {

// TableSize counts the rows of a group, and their pages.
struct TableSize {
  size_t full_rows = 0, full_pages = 0;  // in T0 and T1
  size_t compressed_rows = 0, compressed_pages = 0;
};

class GroupTable {
 public:
  TokenTable rows;
  std::vector<int> groups;  // ascending

  // RowsOfTier lists the full rows of T0 or of T1, for a step that attends to each tier separately.
  struct RowsOfTier {
    std::vector<Slot> slots;
    std::vector<uint32_t> indices;  // among all rows
  };
  std::array<RowsOfTier, 2> by_tier;

  // Returns the slots of the full rows, in order of position.
  [[nodiscard]] std::span<const Slot> FullSlots() const {
    return HasCompressed() ? std::span<const Slot>(full_.slots) : rows.slots();
  }
  [[nodiscard]] std::span<const Position> FullPositions() const {
    return HasCompressed() ? std::span<const Position>(full_positions_) : rows.positions();
  }
  // Returns the last position to which each full row is visible; empty while none is hidden.
  [[nodiscard]] std::span<const Position> FullLastVisible() const {
    return HasCompressed() ? std::span<const Position>(full_last_visible_) : rows.last_visible();
  }
  // Returns the indices, among all rows, of the full rows; empty while T2 has no rows.
  [[nodiscard]] std::span<const uint32_t> FullIndices() const { return full_.indices; }
  [[nodiscard]] std::span<const Slot> CompressedSlots() const { return compressed_.slots; }
  [[nodiscard]] std::span<const uint32_t> CompressedIndices() const { return compressed_.indices; }
  [[nodiscard]] bool HasCompressed() const { return rows.num_rows(Tier::kT2) > 0; }
  // Returns how many of the first positions have a row in T0 or T1, without a gap.
  [[nodiscard]] size_t NumFirstRows() const;
  // Calls visit(page) for the present pages of a tier, in ascending order.
  template <typename Visit>
  void ForEachPage(Tier tier, const Visit& visit) const {
    for (size_t page = 0; page < rows.page_end(); ++page) {
      if (rows.HasPage(page, tier)) visit(page);
    }
  }

  // Allocates memory for `num_rows` more full rows, so that Append() allocates nothing.
  void ReserveRows(size_t num_rows);
  // Appends rows; see TokenTable::Append().
  void Append(Position first, size_t num_rows, std::vector<TablePage>* added);
  // Hides a row; see TokenTable::SetLastVisible().
  void SetLastVisible(uint32_t index, Position last);
  // Lists the rows by format. Called after any other change of `rows`.
  void ListFormats();
  // Fills `by_tier`.
  void SplitByTier();

  // Returns the most bytes of a table of `num_groups` groups that no step reads by tier.
  [[nodiscard]] static size_t BytesFor(const TableSize& size, size_t num_groups);
  [[nodiscard]] size_t table_bytes() const;
  // Returns Internal if the table is inconsistent or the lists by format are stale, for tests;
  // takes O(rows).
  [[nodiscard]] Status Validate() const;

 private:
  struct RowsOfFormat {
    MappedArray<Slot> slots;        // in order of position
    MappedArray<uint32_t> indices;  // among all rows
    bool operator==(const RowsOfFormat&) const = default;
  };

  RowsOfFormat full_, compressed_;
  MappedArray<Position> full_positions_;     // [rows of full_]
  MappedArray<Position> full_last_visible_;  // [rows of full_], or empty
};

}  // namespace ebb

#endif  // EBB_KV_GROUP_TABLE_H_
