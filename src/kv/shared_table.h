// Which rows the groups of a sequence hold, and the pages of a stream: the parts of a
// SequenceCache.
#ifndef EBB_KV_SHARED_TABLE_H_
#define EBB_KV_SHARED_TABLE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/kv/arena.h"
#include "src/kv/token_table.h"

namespace ebb {

// The rows of the groups that agree on them.
struct SharedTable {
  TokenTable full;          // in T0 and T1
  TokenTable compressed;    // in T2
  std::vector<int> groups;  // ascending
  // All rows in order of position, and which of them the rows of either table are; empty while T2
  // is.
  MappedArray<Position> positions;
  MappedArray<uint32_t> full_rows, compressed_rows;
  // The full rows of T0 and of T1 apart, for a step that attends to either where it lies.
  struct Placed {
    std::vector<uint32_t> slots;
    std::vector<uint32_t> rows;  // among all rows
  };
  std::array<Placed, 2> placed;

  [[nodiscard]] std::span<const Position> AllPositions() const {
    return compressed.num_rows() == 0 ? full.positions() : std::span<const Position>(positions);
  }
  [[nodiscard]] size_t num_rows() const { return full.num_rows() + compressed.num_rows(); }
  // To be called when rows joined or left either table.
  void MergePositions();
  // Fills `placed`.
  void Place();
};

// A page of T0 or T1 by its id: in T0's arena, in T1's, or in T1's file. A borrowed one was
// allocated for another sequence, which shared it.
class PageRef {
 public:
  PageRef() = default;
  PageRef(Tier place, PageId id) : id_(id), in_t1_(place == Tier::kT1 ? 1 : 0) {}
  [[nodiscard]] bool empty() const { return id_ == kNoPage; }
  [[nodiscard]] PageId id() const { return id_; }
  [[nodiscard]] Tier place() const { return in_t1_ != 0 ? Tier::kT1 : Tier::kT0; }
  [[nodiscard]] bool is_borrowed() const { return is_borrowed_ != 0; }
  [[nodiscard]] PageRef Borrowed() const {
    PageRef ref = *this;
    ref.is_borrowed_ = 1;
    return ref;
  }

 private:
  uint32_t id_ : 30 = kNoPage;
  uint32_t in_t1_ : 1 = 0;
  uint32_t is_borrowed_ : 1 = 0;
};

// The memory of one (layer, kv head): what it holds by id, and where that is now.
struct Stream {
  const SharedTable* table = nullptr;
  std::vector<PageRef> refs;                 // [at least full.page_end()]
  std::vector<std::byte*> pages;             // [as refs]; null: none, or in T1 and not staged
  std::vector<std::byte*> host_pages;        // [as refs], where the device cannot read T1
  std::vector<PageId> compressed_ids;        // [at least compressed.page_end()]
  std::vector<std::byte*> compressed_pages;  // [as compressed_ids]
};

}  // namespace ebb

#endif  // EBB_KV_SHARED_TABLE_H_
