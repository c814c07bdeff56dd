// Reads and writes rows of all streams of some tables during a move, in any tier. If only a device
// can address T0 (a closed device), rows are copied to the host and back, a few MiB at a time.
#ifndef EBB_KV_ROW_EDITOR_H_
#define EBB_KV_ROW_EDITOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/device/device.h"
#include "src/kv/page_map.h"
#include "src/rows/tier_rows.h"

namespace ebb {

// TableEdit names the rows of a table that an edit reads or writes, by their slots.
class TableEdit {
 public:
  using Access = TierRows::Access;
  // Edit reads or writes the rows of one stream. addresses[i]: where the row of the i-th slot lies
  // during the call.
  using Edit = std::function<void(const Stream&, std::span<const RowAddress> addresses)>;

  explicit TableEdit(const GroupTable* table) : table_(table) {}

  // AddInT0() and AddInT1() add slots of rows in T0 or T1. All slots of a tier have the same
  // access. fresh: pages without other rows.
  void AddInT0(std::span<const Slot> slots, Access access);
  void AddInT1(std::span<const Slot> slots, Access access, std::span<const TablePage> fresh);
  // Adds slots of full rows to read, in this order, in the tiers that the table says now.
  void AddToRead(std::span<const Slot> slots);
  void SetEdit(Edit edit) { edit_ = std::move(edit); }

  [[nodiscard]] const GroupTable& table() const { return *table_; }
  [[nodiscard]] size_t NumInT0() const { return slots_.size() - t1_places_.size(); }
  [[nodiscard]] Access t0_access() const { return t0_access_; }
  // Returns the rows in T1; null: there are none.
  [[nodiscard]] const TierRows::Rows* InT1() const {
    return t1_places_.empty() ? nullptr : &t1_rows_;
  }
  // Calls in_t0(slot) or in_t1() for each slot, in order.
  template <typename InT0, typename InT1>
  void ForEachSlot(const InT0& in_t0, const InT1& in_t1) const {
    auto t1_place = t1_places_.begin();
    for (uint32_t i = 0; i < slots_.size(); ++i) {
      if (t1_place != t1_places_.end() && *t1_place == i) {
        in_t1();
        ++t1_place;
      } else {
        in_t0(slots_[i]);
      }
    }
  }
  void Run(const Stream& stream, std::span<const RowAddress> addresses) const {
    edit_(stream, addresses);
  }

 private:
  void PushInT1(Slot slot);

  const GroupTable* table_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> t1_places_;  // ascending: which of the slots lie in T1; the others in T0
  TierRows::Rows t1_rows_;           // those
  Access t0_access_ = Access::kRead;
  Edit edit_;
};

class RowEditor {
 public:
  // Makes an editor. REQUIRES: all arguments outlive it.
  RowEditor(const CacheLayout& layout, const PageMap& pages, const RowStores& stores,
            Device* device)
      : layout_(layout), pages_(pages), stores_(stores), device_(device) {}

  // Runs each edit for all streams of its table. Errors: those of a file or a device, after which
  // some edits were not run.
  Status Run(std::span<const TableEdit> edits) const;

 private:
  struct StreamEdit {
    const TableEdit* edit = nullptr;
    const Stream* stream = nullptr;
    size_t first_in_t0 = 0;  // its first row of T0 among those of all edits
  };
  Status RunOnStreams(std::span<const StreamEdit> edits) const;

  const CacheLayout& layout_;
  const PageMap& pages_;
  const RowStores& stores_;
  Device* const device_;
};

// Adds the table's pages of T1, and `new_pages` more, to the number of pages that may be edited.
void AddEditSize(const CacheLayout& layout, const GroupTable& table, size_t new_pages,
                 TierRows::EditSize* size);

}  // namespace ebb

#endif  // EBB_KV_ROW_EDITOR_H_
