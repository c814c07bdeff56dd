// Holds the rows of groups that have the same rows.
//
// Invariants: (1) a position is in the full or in the compressed table, never in both; (2) the
// merged lists contain the rows of both tables, and are empty while T2 has no rows.
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

struct GroupTable {
  TokenTable full;          // in T0 and T1
  TokenTable compressed;    // in T2
  std::vector<int> groups;  // ascending
  // positions lists all rows in order of position; full_rows and compressed_rows hold the indices,
  // in `positions`, of the rows of either table.
  MappedArray<Position> positions;
  MappedArray<uint32_t> full_rows, compressed_rows;
  // RowsOfTier lists the full rows of T0 or of T1, for a step that attends to each tier separately.
  struct RowsOfTier {
    std::vector<Slot> slots;
    std::vector<uint32_t> indices;  // among all rows
  };
  std::array<RowsOfTier, 2> by_tier;

  [[nodiscard]] std::span<const Position> AllPositions() const {
    return compressed.num_rows() == 0 ? full.positions() : std::span<const Position>(positions);
  }
  [[nodiscard]] size_t num_rows() const { return full.num_rows() + compressed.num_rows(); }
  [[nodiscard]] TokenTable& TableOf(Tier tier) { return tier == Tier::kT2 ? compressed : full; }
  [[nodiscard]] const TokenTable& TableOf(Tier tier) const {
    return tier == Tier::kT2 ? compressed : full;
  }
  [[nodiscard]] size_t NumRows(Tier tier) const {
    return tier == Tier::kT2 ? compressed.num_rows() : full.num_rows(tier);
  }
  [[nodiscard]] size_t NumPages(Tier tier) const {
    return tier == Tier::kT2 ? compressed.num_pages() : full.num_pages(tier);
  }
  [[nodiscard]] size_t num_sealed() const { return full.num_sealed() + compressed.num_sealed(); }
  // Calls visit(page) for the present pages of a tier, in ascending order.
  template <typename Visit>
  void ForEachPage(Tier tier, const Visit& visit) const {
    const TokenTable& table = TableOf(tier);
    for (size_t page = 0; page < table.page_end(); ++page) {
      if (table.HasPage(page) && (tier == Tier::kT2 || table.TierOf(page) == tier)) visit(page);
    }
  }
  // Returns how many of the first positions have a row in T0 or T1, without a gap.
  [[nodiscard]] size_t NumFirstRows() const;
  // Translates ascending indices of all rows into indices within the two tables.
  void Split(std::span<const uint32_t> rows, std::vector<uint32_t>* of_full,
             std::vector<uint32_t>* of_compressed) const;

  // Allocates memory in the merged lists for `num_rows` more full rows.
  void ReserveMerged(size_t num_rows);
  // Adds the full rows at positions first, first + 1, ... to the end of the merged lists.
  void AppendMerged(Position first, size_t num_rows);
  // Rebuilds the merged lists. Called after any other change of the tables.
  void MergePositions();
  // Fills `by_tier`.
  void SplitByTier();

  // Returns the most bytes of a table of `num_groups` groups that no step reads by tier.
  [[nodiscard]] static size_t BytesFor(const TableSize& size, size_t num_groups);
  [[nodiscard]] size_t table_bytes() const;
  // Returns Internal if a table is inconsistent or the merged lists are stale, for tests; takes
  // O(rows).
  [[nodiscard]] Status Validate() const;
};

}  // namespace ebb

#endif  // EBB_KV_GROUP_TABLE_H_
