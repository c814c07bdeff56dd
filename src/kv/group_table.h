// Which rows the groups of a sequence hold, and the pages of a stream: the parts of a
// SequenceCache.
#ifndef EBB_KV_GROUP_TABLE_H_
#define EBB_KV_GROUP_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/token_table.h"
#include "src/rows/page_ref.h"

namespace ebb {

// The rows of the groups that agree on them.
struct GroupTable {
  TokenTable full;          // in T0 and T1
  TokenTable compressed;    // in T2
  std::vector<int> groups;  // ascending
  // All rows in order of position, and which of them the rows of either table are; empty while T2
  // is.
  MappedArray<Position> positions;
  MappedArray<uint32_t> full_rows, compressed_rows;
  // The full rows of T0 and of T1 apart, for a step that attends to either where it lies.
  struct RowsOfTier {
    std::vector<Slot> slots;
    std::vector<uint32_t> rows;  // among all rows
  };
  std::array<RowsOfTier, 2> by_tier;

  [[nodiscard]] std::span<const Position> AllPositions() const {
    return compressed.num_rows() == 0 ? full.positions() : std::span<const Position>(positions);
  }
  [[nodiscard]] size_t num_rows() const { return full.num_rows() + compressed.num_rows(); }
  // To be called when rows joined or left either table.
  void MergePositions();
  // Fills `by_tier`.
  void SplitByTier();
};

// The memory of one (layer, kv head): the ids of its pages, and their present addresses.
struct Stream {
  const GroupTable* table = nullptr;
  std::vector<PageRef> refs;  // [at least full.page_end()]
  // [as refs]: where a step attends to the page; null: none, or in T1 and not staged.
  std::vector<std::byte*> pages;
  std::vector<std::byte*> t1_pages;          // [as refs]: where pages of T1 lie that are staged
  std::vector<PageRef> compressed_refs;      // [at least compressed.page_end()]
  std::vector<std::byte*> compressed_pages;  // [as compressed_refs]
  // The mean of the first keys, as they were when the first row went to T2, which all rows there
  // are stored relative to: [head_dim], or empty: no row went there yet, or its format has no
  // centre. The same for every row since, so that rows move and die alone.
  std::vector<float> key_centre;

  [[nodiscard]] const float* CentreOfKeys() const {
    return key_centre.empty() ? nullptr : key_centre.data();
  }
};

}  // namespace ebb

#endif  // EBB_KV_GROUP_TABLE_H_
