// Maps every stream, a (layer, kv head) of one sequence, to its pages: their ids in the tiers and
// their current addresses.
//
// Pages are allocated through ReservedPages, so that a change that has begun cannot fail for lack
// of pages, and freed through ReleasedPages; both finish in their destructors.
//
// Invariants: a stream has a page exactly where the table of its group has one, except between a
// change of the table and the Take() or Release() of its pages. For pages of T0, and of a T1 that
// is not staged, pages[p] is the address as of the last FindAddresses(); another cache may have
// moved the page since. For a staged T1, pages[p] is valid only during a step; the page's permanent
// address, if it has one, is t1_pages[p]. After a change that stopped half-way, streams and tables
// may disagree; the destructor therefore frees the pages that the streams list.
//
// Thread safety: changes must be serialised; many threads may call const functions at once.
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

// Stream lists the pages of one (layer, kv head).
struct Stream {
  std::vector<PageRef> refs;  // [at least page_end() of its table]
  // Holds the address at which a step reads each page, [as refs]; null: no page, or one of T1 that
  // is not staged now.
  std::vector<std::byte*> pages;
  std::vector<std::byte*> t1_pages;  // [as refs]: where pages of T1 lie that are staged
  // Holds the centre relative to which keys in T2 are stored, [head_dim]: the mean of the stream's
  // first keys at the time when its first row went to T2. Empty: no row went to T2 yet, or T2's
  // format has no centre. The centre stays the same for all later rows, so that each row can be
  // moved or evicted alone.
  std::vector<float> key_centre;

  [[nodiscard]] const float* CentreOfKeys() const {
    return key_centre.empty() ? nullptr : key_centre.data();
  }
};

// PageCounts counts the pages that a change allocates, by tier and layer.
class PageCounts {
 public:
  // Adds `pages_per_stream` pages for every stream of the table.
  void Add(const CacheLayout& layout, const GroupTable& table, Tier tier, size_t pages_per_stream);
  // Returns the counts by layer; empty: none.
  [[nodiscard]] std::span<const size_t> OfTier(Tier tier) const {
    return of_tiers_[static_cast<size_t>(tier)];
  }

 private:
  std::array<std::vector<size_t>, 3> of_tiers_;
};

class PageMap;

// ReservedPages holds pages for one change of a cache. End() or the destructor returns the pages
// that the change did not use. The PageMap must outlive it.
class ReservedPages {
 public:
  explicit ReservedPages(PageMap* map);
  // Reserves pages so that `counts` pages can be taken, including pages reserved earlier. Errors,
  // after which the caller must call End(): T0Full, T1Full, OutOfMemory, IoError.
  Status Reserve(const PageCounts& counts);
  Status ReserveT0(size_t num_pages);
  // Takes reserved pages for the pages that joined the table, in all of its streams.
  void Take(const GroupTable& table, std::span<const TablePage> added);
  // Takes one reserved page for one stream. The stream's previous page at this index, if any, is
  // left to the caller, who must release it.
  void Take(int stream, Tier tier, size_t page);
  // Returns unused pages to the tiers, and unused memory to the system.
  void End();

 private:
  PageMap* const map_;
  std::array<std::optional<PageReservation>, 3> tiers_;  // nullopt: there is no such tier
};

// ReleasedPages frees pages of a change. The pages may stay allocated until it is destroyed.
class ReleasedPages {
 public:
  // Allocates the memory to release `num_in_t1` pages of T1 later. May throw std::bad_alloc.
  explicit ReleasedPages(PageMap* map, size_t num_in_t1 = 0);
  // Releases the pages that left the table, in all of its streams.
  void Release(const GroupTable& table, std::span<const TablePage> freed);
  // Releases a page in all streams of a group. REQUIRES: the page lies in T0.
  void Release(int group, size_t page);
  // Releases every page of a stream, without consulting its table.
  void ReleaseAll(int stream);
  // Releases a page that no stream lists any more.
  void Release(PageRef page);

 private:
  void ReleaseOf(Stream* stream, size_t page);

  PageMap* const map_;
  std::array<std::optional<PageReleases>, 3> tiers_;
};

class PageMap {
 public:
  // Returns the most bytes of a map with `num_streams` streams, each in a group of this size.
  // centre_floats: numbers in a stream's key_centre.
  [[nodiscard]] static size_t BytesFor(size_t num_streams, const TableSize& of_group,
                                       size_t centre_floats);

  // Makes streams without pages. REQUIRES: both arguments outlive the map.
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
    return stream.pages[slot.page()] + slot.row() * layout_.compressed_format().RowStride();
  }
  // Returns the pages of a tier; null: there is no such tier.
  [[nodiscard]] TierPages* PagesOf(Tier tier) const;
  [[nodiscard]] bool CompressedOnDevice() const {
    return stores_.t2 != nullptr && stores_.t2->IsOnDevice();
  }
  // Returns whether pages of T1 have permanent addresses in addition to their staged copies.
  [[nodiscard]] bool T1HasAddresses() const { return stage_ != nullptr && stores_.t1->MayStay(); }
  // Returns the pointer to which the stage must write the address of a staged T1 page.
  [[nodiscard]] std::byte** StagedAddress(int stream, size_t page) {
    return &streams_[stream].pages[page];
  }

  // Looks up all addresses again if any page has moved.
  void FindAddresses() {
    if (!HasAddresses()) FindAllAddresses();
  }
  // Returns whether no page has moved since FindAddresses().
  [[nodiscard]] bool HasAddresses() const { return generations_ == Generations(); }

  // Grows the lists of the table's streams so that they have room for its pages and `new_pages`
  // more. May throw std::bad_alloc.
  void Grow(const GroupTable& table, size_t new_pages);
  // Removes the rows at these ascending indices of the table, and frees pages that lose their last
  // row. Allocates all memory before it changes anything.
  void RemoveRows(GroupTable* table, std::span<const uint32_t> rows);
  // Removes every row at `end` and later from the tables, in the same way. Streams without rows in
  // T2 forget their centres of keys, so that later rows get the same bits as in a sequence that
  // never had tokens from `end` on.
  void TruncateTo(Position end, std::span<const std::unique_ptr<GroupTable>> tables);

  void SetKeyCentre(int stream, std::span<const float> centre) {
    streams_[stream].key_centre.assign(centre.begin(), centre.end());
  }
  // Forgets the centres of keys of the table's streams.
  void ForgetKeyCentres(const GroupTable& table);

  // Returns the id of a stream's page in its tier. This and the next functions concern pages that
  // several caches share.
  [[nodiscard]] PageId IdOf(int stream, size_t page) const {
    return streams_[stream].refs[page].id();
  }
  [[nodiscard]] uint32_t NumHolders(int stream, size_t page) const;
  [[nodiscard]] bool IsShared(const GroupTable& table, size_t page) const;
  // Makes the stream share the page of the other map's stream.
  void Share(const PageMap& from, int stream, size_t page);

  [[nodiscard]] size_t table_bytes() const;
  // Returns Internal if the table and its streams disagree, for tests; takes O(pages). Checks
  // addresses only while HasAddresses().
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
  [[nodiscard]] Status CheckPages(const GroupTable& table, const Stream& stream) const;

  const CacheLayout& layout_;
  const RowStores& stores_;
  T1Stage* const stage_;         // null: T1 is attended to where it lies, or there is none
  std::vector<Stream> streams_;  // [streams of the layout]
  // Holds the arenas' generations (T0, T1, T2) at the last look-up of addresses; a generation
  // changes when pages move.
  std::array<uint64_t, 3> generations_ = {};
  std::vector<TablePage> freed_;  // work space
};

}  // namespace ebb

#endif  // EBB_KV_PAGE_MAP_H_
