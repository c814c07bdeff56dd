// Invariants: (1) an extent with free pages is in the list of its bucket, a full one in no list;
// (2) num_free = extents * pages_per_extent - num_pages >= num_reserved; (3) the record of every
// page in use has the page's address, and the extent at that address has the page's id; (4) extents
// * kExtentBytes <= cap_bytes; (5) num_pledged is the sum of NumPledged() of all holders.
#include "src/rows/arena.h"
#include "src/base/text/size_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ebb {
namespace {

constexpr int kNumBuckets = 64;
constexpr int kNoBucket = -1;

struct Extent {
  std::byte* base = nullptr;
  uint32_t num_used = 0;
  int bucket = kNoBucket;
  Extent* prev = nullptr;
  Extent* next = nullptr;
  std::vector<uint32_t> free_pages;  // a stack; the lowest page is popped first
  std::vector<PageId> ids;           // [pages_per_extent]; kNoPage: the page is free
};

struct PageRecord {
  std::byte* address = nullptr;  // null: no page has this id
  uint32_t num_holders = 0;
};

}  // namespace

struct Arena::Impl {
  ArenaOptions options;
  uint32_t pages_per_extent = 0;
  std::unordered_map<const std::byte*, std::unique_ptr<Extent>> extents;  // by address
  std::vector<PageRecord> records;                                        // by page id
  std::vector<PageId> free_ids;  // unused indices of records; capacity for all
  uint64_t generation = 0;
  // Lists extents that are not full by how full they are: bucket 0 has the empty ones, 63 more have
  // the others. With few buckets, one bit scan finds the fullest (or the sparsest) extent for any
  // page size.
  std::array<Extent*, kNumBuckets> buckets{};
  uint64_t buckets_in_use = 0;  // bit b: buckets[b] is not null
  size_t num_empty = 0;         // extents in bucket 0
  size_t num_pages = 0;         // pages with a holder
  size_t num_free = 0;          // pages of all extents without a holder
  size_t num_reserved = 0;      // the part of num_free that is reserved
  size_t num_pledged = 0;       // pages kept for floors of holders that lack them
  size_t peak_reserved_bytes = 0;
  size_t bytes_compacted = 0;
  Status lost;  // the device failed while pages moved: contents are unknown

  // Returns the most extents that the caps, and the number of possible page ids, allow.
  [[nodiscard]] size_t max_extents() const {
    const size_t most =
        std::min<size_t>(options.cap_bytes / kExtentBytes, kNoPage / pages_per_extent);
    if (options.shared_cap == nullptr) return most;
    const SharedCap& shared = *options.shared_cap;
    return std::min(most, extents.size() + (shared.cap_bytes - shared.mapped_bytes) / kExtentBytes);
  }

  // Returns how many more pages may be taken by a holder for which `own_pledged` pages are kept.
  [[nodiscard]] size_t NumAvailable(size_t own_pledged) const {
    const size_t taken = num_pages + num_pledged - own_pledged;
    const size_t all = max_extents() * pages_per_extent;
    return all > taken ? all - taken : 0;
  }

  [[nodiscard]] int BucketOf(uint32_t num_used) const {
    if (num_used == pages_per_extent) return kNoBucket;
    if (num_used == 0) return 0;
    return 1 +
           static_cast<int>(uint64_t{num_used - 1} * (kNumBuckets - 1) / (pages_per_extent - 1));
  }

  void Unlink(Extent* extent) {
    if (extent->bucket == kNoBucket) return;
    Extent*& head = buckets[extent->bucket];
    (extent->prev != nullptr ? extent->prev->next : head) = extent->next;
    if (extent->next != nullptr) extent->next->prev = extent->prev;
    if (head == nullptr) buckets_in_use &= ~(uint64_t{1} << extent->bucket);
    if (extent->bucket == 0) --num_empty;
    extent->bucket = kNoBucket;
    extent->prev = extent->next = nullptr;
  }

  // Puts the extent in the list of the bucket for its number of used pages; a full extent in no
  // list.
  void Link(Extent* extent) {
    const int bucket = BucketOf(extent->num_used);
    if (bucket == extent->bucket) return;
    Unlink(extent);
    if (bucket == kNoBucket) return;
    extent->bucket = bucket;
    extent->next = buckets[bucket];
    if (extent->next != nullptr) extent->next->prev = extent;
    buckets[bucket] = extent;
    buckets_in_use |= uint64_t{1} << bucket;
    if (bucket == 0) ++num_empty;
  }

  // Returns the fullest extent that has a free page. REQUIRES: an extent in a list has one.
  [[nodiscard]] Extent* Fullest() const {
    return buckets[kNumBuckets - 1 - std::countl_zero(buckets_in_use)];
  }
  [[nodiscard]] Extent* Sparsest() const { return buckets[std::countr_zero(buckets_in_use)]; }

  [[nodiscard]] Extent* ExtentOf(std::byte* page) const {
    return extents.at(page - (reinterpret_cast<uintptr_t>(page) & (kExtentBytes - 1))).get();
  }
  [[nodiscard]] uint32_t PageIndex(const Extent& extent, const std::byte* page) const {
    return static_cast<uint32_t>(static_cast<size_t>(page - extent.base) / options.page_bytes);
  }

  [[nodiscard]] Status Full(std::string message) const {
    return {options.full, std::move(message)};
  }

  Status AddExtent() {
    const auto refused = [this](const std::string& reason) {
      return OutOfMemory(
          fmt::format("the system refused another 2 MiB for the cache, which has {}: {}",
                      SizeText(extents.size() * kExtentBytes), reason));
    };
    const Result<std::byte*> memory = options.device->Allocate(options.memory, kExtentBytes);
    if (!memory.ok()) {
      // Other errors, such as Internal from a device that was lost, are no lack of memory, and are
      // returned unchanged.
      if (memory.status().code() != StatusCode::kOutOfMemory) return memory.status();
      return refused(memory.status().message());
    }
    std::byte* const base = *memory;
    try {
      auto extent = std::make_unique<Extent>();
      extent->base = base;
      extent->ids.assign(pages_per_extent, kNoPage);
      extent->free_pages.resize(pages_per_extent);
      std::iota(extent->free_pages.rbegin(), extent->free_pages.rend(), 0);
      AddRecords((extents.size() + 1) * pages_per_extent);
      Link(extents.emplace(base, std::move(extent)).first->second.get());
    } catch (const std::bad_alloc&) {
      (void)FreeExtent(base);
      return refused("no memory for its records");
    }
    num_free += pages_per_extent;
    if (options.shared_cap != nullptr) options.shared_cap->mapped_bytes += kExtentBytes;
    return OkStatus();
  }

  // Adds records, and free ids for them, until there are `num_records` in all.
  void AddRecords(size_t num_records) {
    if (num_records <= records.size()) return;
    free_ids.reserve(num_records);
    const size_t first = records.size();
    records.resize(num_records);
    for (size_t id = num_records; id-- > first;) free_ids.push_back(static_cast<PageId>(id));
  }

  [[nodiscard]] Status FreeExtent(std::byte* base) const {
    return options.device->Free(options.memory, base, kExtentBytes);
  }

  enum class Release { kDone, kRefused };

  Release RemoveExtent(Extent* extent) {
    assert(extent->num_used == 0);
    if (!FreeExtent(extent->base).ok()) return Release::kRefused;
    Unlink(extent);
    num_free -= pages_per_extent;
    extents.erase(extent->base);
    if (options.shared_cap != nullptr) options.shared_cap->mapped_bytes -= kExtentBytes;
    return Release::kDone;
  }

  // Unmaps empty extents until at most `max_empty` are left, but keeps as many as reserved pages
  // need.
  void TrimEmpty(size_t max_empty) {
    while (num_empty > max_empty && num_free - num_reserved >= pages_per_extent) {
      if (RemoveExtent(buckets[0]) == Release::kRefused) return;
    }
  }

  // Gives page `id` an address: a free page of the fullest extent.
  void Take(PageId id) {
    Extent* extent = Fullest();
    const uint32_t page = extent->free_pages.back();
    extent->free_pages.pop_back();
    extent->ids[page] = id;
    records[id].address = extent->base + page * options.page_bytes;
    ++extent->num_used;
    ++num_pages;
    --num_free;
    Link(extent);
  }

  void Count(PageHolder* holder, int change);

  // Frees page `page` of the extent and takes its address from its id. The caller must call Link()
  // afterwards.
  void Drop(Extent* extent, uint32_t page) {
    records[extent->ids[page]].address = nullptr;
    extent->ids[page] = kNoPage;
    extent->free_pages.push_back(page);
    --extent->num_used;
    --num_pages;
    ++num_free;
  }

  // Moves at most `max_pages` pages out of an extent that is in no list; returns their number.
  size_t Drain(Extent* extent, size_t max_pages) {
    std::vector<CopyPart> copies;
    for (uint32_t page = 0; page < pages_per_extent && copies.size() < max_pages; ++page) {
      const PageId id = extent->ids[page];
      if (id == kNoPage) continue;
      const std::byte* from = records[id].address;
      Drop(extent, page);
      Take(id);
      copies.push_back({.from = from, .to = records[id].address, .num_bytes = options.page_bytes});
    }
    if (copies.empty()) return 0;
    if (options.memory != MemoryKind::kPinned) {
      const Status copied = options.device->CopyRows(copies);
      if (lost.ok()) lost = copied;
    } else {
      for (const CopyPart& copy : copies) std::memcpy(copy.to, copy.from, copy.num_bytes);
    }
    ++generation;
    return copies.size();
  }
};

Arena::Arena() : impl_(std::make_unique<Impl>()) {}

Arena::~Arena() {
  assert(impl_->num_pages == 0 && "pages are held still");
  for (const auto& [base, extent] : impl_->extents) (void)impl_->FreeExtent(extent->base);
}

uint64_t Arena::BytesFor(uint64_t num_pages, size_t page_bytes) {
  const uint64_t of_extent = std::max<uint64_t>(kExtentBytes / page_bytes, 1);
  return (num_pages + of_extent - 1) / of_extent * kExtentBytes;
}

Result<std::unique_ptr<Arena>> Arena::Create(const ArenaOptions& options) {
  if (options.page_bytes == 0 || options.page_bytes % 64 != 0 ||
      options.page_bytes > kExtentBytes) {
    return InvalidArgument(
        fmt::format("a page must have a multiple of 64 bytes, at least 64 and at most {}; got {}",
                    kExtentBytes, options.page_bytes));
  }
  if (options.cap_bytes < kExtentBytes) {
    const ComparedSizes sizes(kExtentBytes, options.cap_bytes);
    return InvalidArgument(
        fmt::format("a cap must be at least {}; got {}", sizes.first, sizes.second));
  }
  std::unique_ptr<Arena> arena(new Arena);
  arena->impl_->options = options;
  arena->impl_->pages_per_extent = static_cast<uint32_t>(kExtentBytes / options.page_bytes);
  return arena;
}

Status Arena::Reserve(size_t num_pages, const PageHolder* holder) {
  Impl& a = *impl_;
  EBB_RETURN_IF_ERROR(a.lost);
  if (a.num_pledged > 0) {
    const size_t available = a.NumAvailable(holder == nullptr ? 0 : holder->NumPledged());
    if (a.num_reserved + num_pages > available) {
      return a.Full(fmt::format(
          "the cache needs {} more pages of {}, but {} of its cap of {} are left "
          "beside what is kept for other sequences",
          num_pages, SizeText(a.options.page_bytes), available, SizeText(a.options.cap_bytes)));
    }
  }
  const size_t wanted = a.num_reserved + num_pages;
  const size_t missing = wanted > a.num_free ? wanted - a.num_free : 0;
  const size_t num_new = missing / a.pages_per_extent + (missing % a.pages_per_extent != 0 ? 1 : 0);
  if (num_new > a.max_extents() - a.extents.size()) {
    const SharedCap* const shared = a.options.shared_cap.get();
    const size_t mapped =
        shared != nullptr ? shared->mapped_bytes : a.extents.size() * kExtentBytes;
    return a.Full(fmt::format(
        "the cache needs {} more pages of {}, but {} of its cap of {} are mapped{} and "
        "{} pages are free",
        num_pages, SizeText(a.options.page_bytes), SizeText(mapped), SizeText(a.options.cap_bytes),
        shared != nullptr ? " by T0 and T2" : "", a.num_free));
  }
  const size_t num_empty_before = a.num_empty;
  for (size_t i = 0; i < num_new; ++i) {
    if (Status status = a.AddExtent(); !status.ok()) {
      a.TrimEmpty(num_empty_before);
      return status;
    }
  }
  a.num_reserved = wanted;
  a.peak_reserved_bytes = std::max(a.peak_reserved_bytes, a.extents.size() * kExtentBytes);
  return OkStatus();
}

Status Arena::SetFloor(PageHolder* holder, size_t num_pages) {
  Impl& a = *impl_;
  const size_t pledged = num_pages > holder->num_pages ? num_pages - holder->num_pages : 0;
  const size_t available = a.NumAvailable(holder->NumPledged());
  if (pledged > available) {
    return a.Full(fmt::format(
        "a floor of {} pages of {} needs {} more, but {} of the cap of {} are left", num_pages,
        SizeText(a.options.page_bytes), pledged, available, SizeText(a.options.cap_bytes)));
  }
  a.num_pledged = a.num_pledged - holder->NumPledged() + pledged;
  holder->floor = num_pages;
  return OkStatus();
}

void Arena::Impl::Count(PageHolder* holder, int change) {
  if (holder == nullptr) return;
  num_pledged -= holder->NumPledged();
  holder->num_pages += change;
  num_pledged += holder->NumPledged();
}

Status Arena::Allocate(PageId* page, PageHolder* holder) {
  EBB_RETURN_IF_ERROR(Reserve(1, holder));
  *page = Take(holder);
  return OkStatus();
}

PageId Arena::Take(PageHolder* holder) {
  Impl& a = *impl_;
  assert(a.num_reserved > 0);
  const PageId page = a.free_ids.back();
  a.free_ids.pop_back();
  a.records[page].num_holders = 1;
  a.Take(page);
  a.Count(holder, 1);
  --a.num_reserved;
  return page;
}

void Arena::EndReservation(size_t num_pages) {
  assert(num_pages <= impl_->num_reserved);
  impl_->num_reserved -= num_pages;
  impl_->TrimEmpty(0);
}

void Arena::Share(PageId page) {
  assert(impl_->records[page].num_holders > 0);
  ++impl_->records[page].num_holders;
}

void Arena::Release(PageId page, PageHolder* holder) {
  Impl& a = *impl_;
  PageRecord& record = a.records[page];
  assert(record.num_holders > 0);
  a.Count(holder, -1);
  if (--record.num_holders > 0) return;
  Extent* extent = a.ExtentOf(record.address);
  a.Drop(extent, a.PageIndex(*extent, record.address));
  a.free_ids.push_back(page);
  a.Link(extent);
  if (extent->num_used == 0) a.TrimEmpty(a.num_pages == 0 ? 0 : 1);
}

uint32_t Arena::num_holders(PageId page) const { return impl_->records[page].num_holders; }

std::byte* Arena::Address(PageId page) const { return impl_->records[page].address; }
size_t Arena::page_end() const { return impl_->records.size(); }

uint64_t Arena::generation() const { return impl_->generation; }

size_t Arena::Compact(size_t max_bytes) {
  Impl& a = *impl_;
  a.TrimEmpty(0);
  size_t num_left = max_bytes / a.options.page_bytes;
  size_t num_moved = 0;
  Device* const device = a.options.device;
  if (num_left > 0 && a.options.memory == MemoryKind::kPinned && device->IsClosed()) {
    // Waits for copies of pages to the device. An error is ignored here, because it is returned to
    // the readers of these pages.
    (void)device->Wait(device->Record(DeviceQueue::kToDevice));
  }
  // If the other extents have an extent's worth of free pages, the sparsest extent can be emptied
  // into them.
  while (a.num_free - a.num_reserved >= a.pages_per_extent && num_left > 0) {
    Extent* sparsest = a.Sparsest();
    a.Unlink(sparsest);
    const size_t num_drained = a.Drain(sparsest, num_left);
    a.Link(sparsest);
    num_moved += num_drained;
    num_left -= num_drained;
    if (sparsest->num_used > 0) break;
    if (a.RemoveExtent(sparsest) == Impl::Release::kRefused) break;
  }
  const size_t num_bytes = num_moved * a.options.page_bytes;
  a.bytes_compacted += num_bytes;
  return num_bytes;
}

size_t Arena::NumAvailable(const PageHolder& holder) const {
  return impl_->NumAvailable(holder.NumPledged());
}

ArenaStats Arena::stats() const {
  const Impl& a = *impl_;
  const size_t bytes_per_record =
      sizeof(Extent) + a.pages_per_extent * (sizeof(uint32_t) + sizeof(PageId));
  return {.reserved_bytes = a.extents.size() * kExtentBytes,
          .used_bytes = a.num_pages * a.options.page_bytes,
          .peak_reserved_bytes = a.peak_reserved_bytes,
          .num_pages = a.num_pages,
          .pledged_bytes = a.num_pledged * a.options.page_bytes,
          .bytes_compacted = a.bytes_compacted,
          .table_bytes = sizeof(Impl) + a.extents.size() * bytes_per_record +
                         a.records.capacity() * sizeof(PageRecord) +
                         a.free_ids.capacity() * sizeof(PageId)};
}

size_t Arena::page_bytes() const { return impl_->options.page_bytes; }

size_t Arena::cap_bytes() const { return impl_->options.cap_bytes; }

MemoryKind Arena::memory() const { return impl_->options.memory; }

Status Arena::Validate() const {
  const Impl& a = *impl_;
  size_t num_pages = 0;
  size_t num_empty = 0;
  for (const auto& [base, extent] : a.extents) {
    uint32_t num_used = 0;
    for (uint32_t page = 0; page < a.pages_per_extent; ++page) {
      const PageId id = extent->ids[page];
      if (id == kNoPage) continue;
      ++num_used;
      if (a.records[id].address != base + page * a.options.page_bytes ||
          a.records[id].num_holders == 0) {
        return Internal(fmt::format("the record of page {} names another address, or nobody", id));
      }
    }
    if (num_used != extent->num_used || extent->bucket != a.BucketOf(num_used) ||
        extent->free_pages.size() != a.pages_per_extent - num_used) {
      return Internal(fmt::format("an extent with {} pages counts {}, in bucket {}", num_used,
                                  extent->num_used, extent->bucket));
    }
    num_pages += num_used;
    num_empty += num_used == 0 ? 1 : 0;
  }
  if (a.free_ids.size() + num_pages != a.records.size()) {
    return Internal(fmt::format("{} of {} ids are free beside {} pages", a.free_ids.size(),
                                a.records.size(), num_pages));
  }
  const size_t capacity = a.extents.size() * a.pages_per_extent;
  if (num_pages != a.num_pages || num_empty != a.num_empty || a.num_free != capacity - num_pages ||
      a.num_reserved > a.num_free || a.extents.size() > a.max_extents()) {
    return Internal(fmt::format("{} extents with {} pages: counted {} pages, {} free, {} reserved",
                                a.extents.size(), num_pages, a.num_pages, a.num_free,
                                a.num_reserved));
  }
  return OkStatus();
}

}  // namespace ebb
