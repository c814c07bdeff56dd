// Moves rows between tiers: plans which rows of each table move, reserves pages and memory, and
// carries the moves out. Rows are demoted (T0 to T1), promoted (T1 to T0), compressed (to T2) and
// decompressed (T2 to T0 or T1).
//
// A move first changes the tables, then copies the rows of every stream as its table says, then
// releases pages. Only files and devices can fail in between; CacheHealth records such a failure.
#ifndef EBB_KV_ROW_MOVER_H_
#define EBB_KV_ROW_MOVER_H_

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "ebb/report.h"
#include "src/attention/attention.h"
#include "src/kv/cache_health.h"
#include "src/kv/page_map.h"
#include "src/kv/row_editor.h"
#include "src/kv/row_move.h"
#include "src/kv/tables/group_tables.h"

namespace ebb {

class RowMover {
 public:
  // Makes a mover. kernel: null if there is no T2. key_metrics: as in CacheStores. REQUIRES: all
  // arguments outlive it.
  RowMover(const CacheLayout& layout, const RowStores& stores, const AttentionKernel* kernel,
           std::span<const float> key_metrics, Device* device, GroupTables* tables, PageMap* pages,
           CacheHealth* health);

  // Moves rows between tiers; see SequenceCache::Move(). REQUIRES: CacheHealth::Check() is OK.
  Status Move(std::span<const GroupMoves> wanted);
  // Waits for the writes of earlier moves, and adds the time to the accounting of moves.
  Status FinishWrites();
  // Returns the moves so far, and the time that steps waited for them.
  [[nodiscard]] const MoveAccounting& accounting() const { return accounting_; }
  // Continues the accounting of another cache, whose rows this cache has taken over.
  void Continue(const MoveAccounting& accounting) { accounting_ = accounting; }

 private:
  // Plan lists the rows of a table that move, by position: indices change while rows move.
  struct Plan {
    GroupTable* table = nullptr;
    std::vector<Position> demoted;                      // T0 to T1
    std::vector<Position> promoted;                     // T1 to T0
    std::vector<Position> compressed;                   // T0 or T1 to T2
    std::array<std::vector<Position>, 2> decompressed;  // T2 to T0, T2 to T1
    size_t num_leave_t0 = 0;                            // demoted or compressed
    size_t num_leave_open_t0 = 0;                       // of pages that are not sealed

    // Returns whether compressing reads rows that are in T1 now.
    [[nodiscard]] bool CompressesFromT1() const {
      return demoted.size() + compressed.size() > num_leave_t0;
    }
    [[nodiscard]] size_t NumComeToT0() const { return promoted.size() + decompressed[0].size(); }
    // Returns how many pages the move adds to T1 in each stream.
    [[nodiscard]] size_t NewT1Pages() const;
  };
  using Plans = std::span<const Plan>;

  [[nodiscard]] std::vector<Plan> MakePlans(std::span<const GroupMoves> wanted);
  void PlanRow(const RowMove& move, Plan* plan);
  Status Reserve(Plans plans, ReservedPages* reserved) const;
  Status CarryOut(Plans plans, ReservedPages* reserved);
  Status Demote(Plans plans, ReservedPages* reserved);
  Status Promote(Plans plans, ReservedPages* reserved);
  Status Compress(Plans plans, ReservedPages* reserved);
  // Chooses the centre of keys of each stream whose first row goes to T2 now.
  Status ChooseCentres(Plans plans);
  void ChooseCentre(std::span<const RowAddress> rows, const Stream& stream);
  [[nodiscard]] KeyFrame FrameOf(const Stream& stream) const;
  Status Decompress(Plans plans, Tier to, ReservedPages* reserved);
  // FreedPages lists the pages that rows left, by table.
  using FreedPages = std::vector<std::pair<const GroupTable*, std::vector<TablePage>>>;
  // Moves rows of a table to slots in a tier, with pages for them in `added_`, before their
  // contents are copied. Returns the moves in the order of `positions`.
  std::vector<SlotMove> MoveInTable(GroupTable* table, std::span<const Position> positions, Tier to,
                                    ReservedPages* reserved, FreedPages* freed);
  // Copies the rows by these edits, then releases `freed`. records: null if no edit compresses.
  Status Run(std::span<const TableEdit> edits, RecordWriter* records, const FreedPages& freed);
  // Moves rows between T0 and T1: demotes or promotes them.
  Status Relocate(Plans plans, std::vector<Position> Plan::*rows, Tier to, ReservedPages* reserved);
  Status WaitForWrites() const;
  // CountDown() and CountUp() count moves of `num_rows` rows, over all streams, in the accounting.
  void CountDown(size_t num_rows);
  void CountUp(size_t num_rows);
  // Returns the sum of num_rows_of(plan), the rows of a table, over the streams of all tables.
  template <typename NumRowsOf>
  [[nodiscard]] size_t NumRows(Plans plans, const NumRowsOf& num_rows_of) const;

  const CacheLayout& layout_;
  const RowStores& stores_;
  const AttentionKernel* const kernel_;
  const std::span<const float> key_metrics_;
  GroupTables* const tables_;
  PageMap* const pages_;
  CacheHealth* const health_;
  const RowEditor editor_;
  MoveAccounting accounting_;
  // Work space.
  std::vector<TablePage> added_;
};

}  // namespace ebb

#endif  // EBB_KV_ROW_MOVER_H_
