// The pages of a sequence: for every stream, (layer, kv head), the ids of its pages in the tiers
// and the addresses at which they lie now.
//
// Pages are taken under a ReservedPages, so that a change that has begun need not fail, and given
// back under a ReleasedPages; both end in their destructors.
//
// Invariants: a stream has a page exactly where the table of its group has one, except between a
// change of the table and the Take() or Release() of its pages. pages[p] of a T0 page, and of a T1
// page where T1 is not staged, is the page's address as of the last FindAddresses(); another cache
// may have moved it since. A T1 page that is staged has an address there only during a step; its
// own, where it has one, is t1_pages[p]. Where a change stopped half-way, streams may have other
// pages than their tables: the destructor frees each stream's own pages.
//
// Thread safety: none for changes; const functions may be called by many threads.
#ifndef EBB_KV_PAGE_MAP_H_
#define EBB_KV_PAGE_MAP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/kv/cache_layout.h"
#include "src/kv/tables/group_table.h"
#include "src/rows/row_stores.h"

namespace ebb {

inline constexpr std::array<Tier, 3> kTiersWithPages = {Tier::kT0, Tier::kT1, Tier::kT2};

// The pages of one stream.
struct Stream {
  std::vector<PageRef> refs;  // [at least full.page_end() of its table]
  // [as refs]: where a step attends to the page; null: none, or in T1 and not staged.
  std::vector<std::byte*> pages;
  std::vector<std::byte*> t1_pages;          // [as refs]: where pages of T1 lie that are staged
  std::vector<PageRef> compressed_refs;      // [at least compressed.page_end() of its table]
  std::vector<std::byte*> compressed_pages;  // [as compressed_refs]
  // The mean of the first keys, as they were when the first row went to T2, which all rows there
  // are stored relative to: [head_dim], or empty: no row went there yet, or its format has no
  // centre. The same for every row since, so that rows move and die alone.
  std::vector<float> key_centre;

  [[nodiscard]] const float* CentreOfKeys() const {
    return key_centre.empty() ? nullptr : key_centre.data();
  }
};

// How many pages of each tier and layer a change takes.
class PageCounts {
 public:
  // Adds pages of every stream of the table.
  void Add(const CacheLayout& layout, const GroupTable& table, Tier tier, size_t pages_per_stream);
  // [layers], or empty: none.
  [[nodiscard]] std::span<const size_t> OfTier(Tier tier) const {
    return of_tiers_[static_cast<size_t>(tier)];
  }

 private:
  std::array<std::vector<size_t>, 3> of_tiers_;
};

class PageMap;

// Pages that are kept for a change of one cache. Ends in End() or in its destructor, which gives
// back what was not taken. The PageMap outlives it.
class ReservedPages {
 public:
  explicit ReservedPages(PageMap* map);
  // Makes sure that so many pages can be taken, those reserved earlier among them. Errors, after
  // which End() is to come: T0Full, T1Full, OutOfMemory, IoError.
  Status Reserve(const PageCounts& counts);
  Status ReserveT0(size_t num_pages);
  // Takes pages that joined the full, or the compressed, table for all streams of the table.
  void Take(const GroupTable& table, std::span<const TablePage> added);
  void TakeCompressed(const GroupTable& table, std::span<const TablePage> added);
  // Takes one page of one stream. T0 and T1 alone: the page before, if there was one, stays with
  // the caller.
  void Take(int stream, Tier tier, size_t page);
  // Gives back what was not taken, and memory that no page uses any more.
  void End();

 private:
  PageMap* const map_;
  std::array<std::optional<PageReservation>, 3> tiers_;  // nullopt: there is no such tier
};

// Gives back the pages that a change frees. They need only be gone once it ends.
class ReleasedPages {
 public:
  // Takes the memory to release so many pages of T1. May throw std::bad_alloc.
  explicit ReleasedPages(PageMap* map, size_t num_in_t1 = 0);
  // Releases pages that left the full, or the compressed, table in all streams of the table.
  void Release(const GroupTable& table, std::span<const TablePage> freed);
  void ReleaseCompressed(const GroupTable& table, std::span<const TablePage> freed);
  // Releases a page of all streams of a group. REQUIRES: it lies in T0.
  void Release(int group, size_t page);
  // Releases every page of a stream without asking its table.
  void ReleaseAll(int stream);
  // Releases a page that no stream lists any more.
  void Release(PageRef page);

 private:
  void ReleaseOf(Stream* stream, size_t page);
  void ReleaseCompressedOf(Stream* stream, size_t page);

  PageMap* const map_;
  std::array<std::optional<PageReleases>, 3> tiers_;
};

class PageMap {
 public:
  // Returns the most bytes for so many streams of a group each. centre_floats: of a stream's centre
  // of keys.
  [[nodiscard]] static size_t BytesFor(size_t num_streams, const TableSize& of_group,
                                       size_t centre_floats);

  // Streams without pages. Both outlive it.
  PageMap(const CacheLayout& layout, const RowStores& stores);
  ~PageMap();
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  [[nodiscard]] const Stream& stream(int index) const { return streams_[index]; }
  [[nodiscard]] int num_streams() const { return static_cast<int>(streams_.size()); }
  [[nodiscard]] std::span<const Stream> StreamsOf(int group) const {
    return std::span(streams_).subspan(layout_.FirstStreamOf(group), layout_.NumStreamsOf(group));
  }
  [[nodiscard]] int IndexOf(const Stream& stream) const {
    return static_cast<int>(&stream - streams_.data());
  }
  [[nodiscard]] RowAddress RowAt(const Stream& stream, Slot slot) const {
    return RowOfPage(stream.pages[slot.page()], slot, layout_.format());
  }
  [[nodiscard]] std::byte* CompressedAt(const Stream& stream, Slot slot) const {
    return stream.compressed_pages[slot.page()] +
           slot.row() * layout_.compressed_format().RowStride();
  }
  // Null: there is no such tier.
  [[nodiscard]] TierPages* PagesOf(Tier tier) const;
  [[nodiscard]] bool CompressedOnDevice() const {
    return stores_.t2 != nullptr && stores_.t2->IsOnDevice();
  }
  // Pages of T1 have addresses of their own, in addition to their staged copies.
  [[nodiscard]] bool T1HasAddresses() const { return stage_ != nullptr && stores_.t1->MayStay(); }
  // The address that a step reads for a page of T1, for the stage to set.
  [[nodiscard]] std::byte** StagedAddress(int stream, size_t page) {
    return &streams_[stream].pages[page];
  }

  // Looks up addresses again if any page has moved.
  void FindAddresses() {
    if (!HasAddresses()) FindAllAddresses();
  }
  // No page has moved since FindAddresses().
  [[nodiscard]] bool HasAddresses() const { return generations_ == Generations(); }

  // Room in the lists of the table's streams for its pages and so many more. May throw
  // std::bad_alloc.
  void Grow(const GroupTable& table, size_t new_pages);
  // Removes rows at these ascending indices of either table, and the pages that lose their last
  // row. First takes all memory that it needs, then changes.
  void RemoveRows(GroupTable* table, std::span<const uint32_t> full_rows,
                  std::span<const uint32_t> compressed_rows);
  // Removes every row at `end` and later from the tables, likewise. Streams without rows in T2
  // forget their centres of keys, so that the rows to come have the bits that they have in a
  // sequence that never went further.
  void TruncateTo(Position end, std::span<const std::unique_ptr<GroupTable>> tables);

  void SetKeyCentre(int stream, std::span<const float> centre) {
    streams_[stream].key_centre.assign(centre.begin(), centre.end());
  }
  // Forgets the centres of keys of the table's streams.
  void ForgetKeyCentres(const GroupTable& table);

  // Pages that several caches hold.
  [[nodiscard]] PageId IdOf(int stream, Tier tier, size_t page) const;
  [[nodiscard]] uint32_t NumHolders(int stream, Tier tier, size_t page) const;
  [[nodiscard]] bool IsShared(const GroupTable& table, Tier tier, size_t page) const;
  // The stream holds the page of the other cache's stream too.
  void Share(const PageMap& from, int stream, Tier tier, size_t page);

  [[nodiscard]] size_t table_bytes() const;
  // Internal when streams of the table and the table disagree; O(pages), for tests. Addresses are
  // checked while HasAddresses().
  [[nodiscard]] Status Validate(const GroupTable& table) const;

 private:
  friend class ReservedPages;
  friend class ReleasedPages;

  [[nodiscard]] std::span<Stream> MutableStreamsOf(int group) {
    return std::span(streams_).subspan(layout_.FirstStreamOf(group), layout_.NumStreamsOf(group));
  }
  [[nodiscard]] std::array<uint64_t, 3> Generations() const;
  void FindAllAddresses();
  void SetAddress(Stream* stream, size_t page) const;
  void Grow(const GroupTable& table, size_t new_pages, Stream* stream) const;
  [[nodiscard]] Status CheckFull(const GroupTable& table, const Stream& stream) const;
  [[nodiscard]] Status CheckCompressed(const GroupTable& table, const Stream& stream) const;

  const CacheLayout& layout_;
  const RowStores& stores_;
  T1Stage* const stage_;         // null: T1 is attended to where it lies, or there is none
  std::vector<Stream> streams_;  // [streams of the layout]
  // The arenas' generations (T0, T1, T2) when addresses were looked up last.
  std::array<uint64_t, 3> generations_ = {};
  std::vector<TablePage> freed_;  // work space
};

}  // namespace ebb

#endif  // EBB_KV_PAGE_MAP_H_
