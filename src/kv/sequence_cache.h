// The cache of one sequence: for every (layer, kv head) a stream of pages, for every group a token
// table that says which slots hold which positions. Rows carry their position through RoPE, so a
// slot's place means nothing: freed slots are used again, half-empty pages are compacted away.
//
// Groups of a granularity share one table until they differ; a table is copied when a removal
// touches some of its groups only.
//
// Invariants: (1) a table's visible list is strictly ascending in position; (2) a slot is in the
// visible list of a table or in its free list, never both; (3) every page of a table exists in all
// streams of its groups; (4) pages * kRowsPerPage = visible + free slots.
//
// Thread safety: none for changes, which happen between steps; views may be read by many threads
// during a step, and row writes to distinct (layer, kv head) may run in parallel.
#ifndef EBB_KV_SEQUENCE_CACHE_H_
#define EBB_KV_SEQUENCE_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ebb/accounting.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/kv/arena.h"

namespace ebb {

class SequenceCache {
 public:
  // REQUIRES: arena outlives the cache and has page_bytes == format.PageBytes().
  SequenceCache(const ModelShape& shape, const PageFormat& format, Granularity granularity,
                Arena* arena);
  ~SequenceCache();
  SequenceCache(const SequenceCache&) = delete;
  SequenceCache& operator=(const SequenceCache&) = delete;

  // Adds `num_tokens` rows at positions first..first+num_tokens-1 to every group; their contents
  // are unspecified until written. Fails, and changes nothing, when the arena has no room
  // (ResourceExhausted) or `first` is not greater than every visible position (InvalidArgument).
  Status Append(Position first, int num_tokens);
  // Keeps only the rows at these ascending indices of the group's visible list.
  void Retain(int group, std::span<const uint32_t> kept);
  // Removes the rows at these ascending indices. Cheap when few.
  void Remove(int group, std::span<const uint32_t> removed);
  // Removes every row at `end` and later, in all groups. Never revives removed rows.
  void TruncateTo(Position end);
  // For rows that prefill may hide from later queries: the last position that sees row `index`;
  // kVisibleForEver takes that back.
  void SetLastVisible(int group, uint32_t index, Position last);
  // Changes the positions of a group's rows (strictly ascending); used when keys are rotated anew.
  void SetPositions(int group, std::span<const Position> positions);
  // Moves rows out of sparse pages into holes of others while that frees whole pages, copying at
  // most `max_bytes`. Returns the bytes copied. Only the slots of rows and the pages change.
  size_t Compact(size_t max_bytes);

  [[nodiscard]] RowsView View(int layer, int kv_head) const;
  // Where key and value of visible row `index` lie, for writing; [head_dim] elements each.
  struct RowAddress {
    std::byte* key;
    std::byte* value;
  };
  [[nodiscard]] RowAddress Row(int layer, int kv_head, uint32_t index);

  [[nodiscard]] std::span<const Position> positions(int group) const;
  [[nodiscard]] int GroupOf(int layer, int kv_head) const;
  [[nodiscard]] int num_groups() const;
  [[nodiscard]] int streams_per_group() const;  // (layer, kv head) pairs that share its table
  [[nodiscard]] Granularity granularity() const;
  [[nodiscard]] const PageFormat& format() const;
  // Largest visible list of any group; what the context and the work buffers must hold.
  [[nodiscard]] size_t max_rows() const;
  [[nodiscard]] CacheAccounting accounting() const;
  // Internal, naming the table, when an invariant does not hold; O(rows), for tests.
  [[nodiscard]] Status Validate() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_H_
