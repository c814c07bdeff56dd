// The insides of a SequenceCache, shared by its source files: sequence_cache.cc changes which rows
// there are, sequence_moves.cc where they lie, sequence_edits.cc what is in them, t1_stage.cc
// brings rows of T1 for a step.
//
// Invariants, besides those of the header: every group stands in the list of exactly one table;
// stream.pages[p] of a T0 page, and of a T1 page in the one memory, is null exactly when the table
// lacks page p, and the arena knows the address of that element as the page's owner. A T1 page
// elsewhere has an address there only while it is staged or edited: in the file it has its number
// in stream.file_pages[p], beyond the device its owned address in stream.host_pages[p].
#ifndef EBB_KV_SEQUENCE_CACHE_IMPL_H_
#define EBB_KV_SEQUENCE_CACHE_IMPL_H_

#include <cassert>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "src/io/io_memory.h"
#include "src/kv/sequence_cache.h"
#include "src/kv/shared_table.h"
#include "src/kv/t1_stage.h"

namespace ebb {

// The rows of a Move(), by what happens to them.
struct MovePlan {
  std::vector<Position> sink, lift;          // T0 to T1, T1 to T0
  std::vector<Position> compress;            // to T2
  std::vector<Position> raise_t0, raise_t1;  // out of T2
  size_t num_leave_t0 = 0;                   // by sinking or by being compressed
};

struct SequenceCache::Impl {
  ModelShape shape;
  PageFormat format;
  Granularity granularity;
  CacheStores stores;
  int streams_per_group = 1;
  std::vector<Stream> streams;                       // [num_layers * num_kv_heads], layer-major
  std::vector<std::unique_ptr<SharedTable>> tables;  // in order of their creation
  std::vector<SharedTable*> table_of_group;          // [num_groups]
  size_t next_compacted = 0;  // the table that Compact() begins with, so that none starves
  int64_t rows_evicted = 0;
  MoveAccounting moved;
  Status broken;                   // why rows were lost: a move that stopped half-way
  std::unique_ptr<T1Stage> stage;  // null: T1 is read where it lies, or there is none
  IoMemory edit_memory;            // pages of T1's file between being read and written back
  bool in_place = false;           // this step leaves the rows of T1 where they are
  // Work space.
  std::vector<TablePage> added, freed;
  std::vector<SlotMove> moves;
  std::vector<uint32_t> full_index, compressed_index;
  std::vector<std::vector<uint32_t>> file_reserve;  // [layers]: file pages for AllocatePages()
  std::vector<Tier> tiers;

  [[nodiscard]] size_t StreamIndex(int layer, int kv_head) const {
    assert(layer >= 0 && layer < shape.num_layers && kv_head >= 0 && kv_head < shape.num_kv_heads);
    return static_cast<size_t>(layer) * shape.num_kv_heads + kv_head;
  }
  [[nodiscard]] std::span<Stream> StreamsOf(int group) {
    return std::span(streams).subspan(static_cast<size_t>(group) * streams_per_group,
                                      streams_per_group);
  }
  [[nodiscard]] size_t NumStreams(const SharedTable& shared) const {
    return shared.groups.size() * streams_per_group;
  }
  [[nodiscard]] int LayerOf(const Stream& stream) const {
    return static_cast<int>(&stream - streams.data()) / shape.num_kv_heads;
  }
  [[nodiscard]] size_t RowBytes() const { return 2 * format.RowStride(); }
  [[nodiscard]] bool HasFile() const { return stores.t1_file != nullptr; }
  // T1 lies in the host's memory, which the device cannot read.
  [[nodiscard]] bool IsRemote() const {
    return stores.t1 != nullptr && !stores.device->one_memory();
  }
  // What the arena of T1 knows as the owner of a page.
  [[nodiscard]] std::byte** T1Owner(Stream* stream, size_t page) const {
    return IsRemote() ? &stream->host_pages[page] : &stream->pages[page];
  }
  [[nodiscard]] RowAddress RowAt(std::byte* page, uint32_t slot) const {
    std::byte* key = page + slot % kRowsPerPage * format.RowStride();
    return {.key = key, .value = key + format.ValueOffset()};
  }
  [[nodiscard]] RowAddress RowAt(const Stream& stream, uint32_t slot) const {
    return RowAt(stream.pages[slot / kRowsPerPage], slot);
  }

  // The group's table, for itself alone.
  SharedTable* Own(int group);
  void GrowPages(Stream* stream);
  // For pages of the full table that joined or left it, in `added` and `freed`.
  void AllocatePages(SharedTable* shared);
  void FreePages(SharedTable* shared);
  // The same for the compressed table.
  void AllocateCompressed(SharedTable* shared);
  void FreeCompressed(SharedTable* shared);
  void RemoveFrom(SharedTable* shared, std::span<const uint32_t> full_rows,
                  std::span<const uint32_t> compressed_rows);
  // Indices among all rows to those in either table, in full_index and compressed_index.
  void Divide(const SharedTable& shared, std::span<const uint32_t> rows);
  void CopyRow(const RowAddress& from, const RowAddress& to) const;
  void MoveRowsWithin(const Stream& stream, Tier place) const;  // as `moves` say
  Status CompactTable(SharedTable* shared, Tier place, size_t max_bytes, size_t* num_bytes);
  void CompactCompressed(SharedTable* shared, size_t max_bytes, size_t* num_bytes);

  // Takes T1 pages out of the file's reserve, which ReserveFilePages() filled.
  [[nodiscard]] uint32_t TakeFilePage(int layer);
  Status ReserveFilePages(const SharedTable& shared, size_t pages_per_stream);
  void ReleaseFilePages();
  // See sequence_edits.cc.
  using StreamEdit = std::function<void(const Stream&)>;
  using RowEdit = std::function<void(const Stream&, std::span<const RowAddress>)>;
  struct T1Pages {
    std::vector<uint32_t> reads, writes;  // ascending
  };
  Status EditRows(SharedTable* shared, std::span<const uint32_t> slots, const T1Pages& pages,
                  const RowEdit& edit);
  Status EditStreams(SharedTable* shared, const T1Pages& pages, const StreamEdit& edit);
  Status EditBatch(std::span<Stream* const> batch, const T1Pages& pages, std::byte* memory,
                   const StreamEdit& edit);
  Status CarryRows(SharedTable* shared, std::span<const uint32_t> slots, const T1Pages& pages,
                   const RowEdit& edit);
  Status CarryBatch(std::span<Stream* const> batch, std::span<const uint32_t> slots,
                    std::span<const uint32_t> carried, const T1Pages& pages, const RowEdit& edit);
  [[nodiscard]] MovePlan PlanMoves(const SharedTable& shared, std::span<const RowMove> wanted);
  Status ReserveMoves(const SharedTable& shared, const MovePlan& plan);
  // What leaves T0, then what comes to it.
  Status Lower(SharedTable* shared, const MovePlan& plan);
  Status Lift(SharedTable* shared, const MovePlan& plan);
  // Takes back what Reserve() promised and nobody needed.
  void EndPromises();
  Status Relocate(SharedTable* shared, std::span<const Position> positions, Tier place);
  Status Compress(SharedTable* shared, std::span<const Position> positions);
  Status Raise(SharedTable* shared, std::span<const Position> positions, Tier place);
  [[nodiscard]] Status CheckStream(const Stream& stream) const;
  [[nodiscard]] std::byte* CompressedAt(const Stream& stream, uint32_t slot) const;
  [[nodiscard]] std::vector<T1Stage::Pages> PagesToStage();
};

}  // namespace ebb

#endif  // EBB_KV_SEQUENCE_CACHE_IMPL_H_
