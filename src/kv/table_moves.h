// The changes of each table in a move of many groups.
#ifndef EBB_KV_TABLE_MOVES_H_
#define EBB_KV_TABLE_MOVES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ebb/types.h"
#include "src/kv/group_table.h"
#include "src/kv/sequence_cache.h"
#include "src/rows/tier_rows.h"

namespace ebb {

// The rows of a Move(), by what happens to them.
struct MovePlan {
  std::vector<Position> sink, lift;          // T0 to T1, T1 to T0
  std::vector<Position> compress;            // to T2
  std::vector<Position> raise_t0, raise_t1;  // out of T2
  size_t num_leave_t0 = 0;                   // by sinking or by being compressed
  size_t num_leave_open_t0 = 0;              // those of pages that are not sealed
};

// The moves of a table.
struct TableMoves {
  GroupTable* group_table = nullptr;
  MovePlan plan;
};

// Reads or writes rows of all streams of a table.
struct TableEdit {
  using Access = TierRows::Access;
  using Edit = std::function<void(const Stream&, std::span<const RowAddress>)>;

  GroupTable* group_table = nullptr;
  std::vector<Slot> slots;          // of the rows that `edit` is given
  std::vector<uint32_t> t1_places;  // ascending: which of `slots` lie in T1; the others lie in T0
  TierRows::Rows t1_rows;           // those
  Access t0_access = Access::kRead;
  Edit edit;
  std::vector<TablePage> freed;  // by the edit, to be freed after it

  [[nodiscard]] size_t NumInT0() const { return slots.size() - t1_places.size(); }
  // Calls in_t0(slot), or in_t1(), for each of `slots`, in their order.
  template <typename InT0, typename InT1>
  void ForEachSlot(const InT0& in_t0, const InT1& in_t1) const {
    auto t1_place = t1_places.begin();
    for (uint32_t i = 0; i < slots.size(); ++i) {
      if (t1_place != t1_places.end() && *t1_place == i) {
        in_t1();
        ++t1_place;
      } else {
        in_t0(slots[i]);
      }
    }
  }
  // Add slots that lie there. Those of T0, as those of T1, have one kind of access. fresh: pages
  // that have no other rows.
  void AddInT0(std::span<const Slot> in_t0, Access access);
  void AddInT1(std::span<const Slot> in_t1, Access access, std::span<const TablePage> fresh);
  // Adds slots, in their order, that lie where the table says.
  void Add(std::span<const Slot> added, Access access, std::span<const TablePage> fresh);

 private:
  void PushInT1(Slot slot);
};

// Moves rows of all streams of a table within their tier.
struct TableMove {
  GroupTable* group_table = nullptr;
  std::vector<SlotMove> moves;
  std::vector<TablePage> freed;  // by the moves, to be freed after them
};

}  // namespace ebb

#endif  // EBB_KV_TABLE_MOVES_H_
