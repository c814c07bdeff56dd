// PageLists lists the pages of a device's memory in which a sequence's rows lie, and the rows'
// slots in these pages. The device keeps the lists from step to step, and a step uploads the
// changes. Streams that share a token table share a list of slots.
#ifndef EBB_STEP_DEVICE_PAGE_LISTS_H_
#define EBB_STEP_DEVICE_PAGE_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/device/backend_device.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

// Returns the rows of a stream that a device reads: all rows, or only those of T0 if the host
// attends to the others.
[[nodiscard]] RowsView RowsOnDevice(const SequenceCache& cache, int layer, int head);

class PageLists {
 public:
  // Makes lists of `num_pages` pages for each stream and of `num_rows` slots for each group;
  // `kv_heads` is [layers]. Lists of pages are padded with the spare page, lists of slots with any
  // slot. If num_groups is 0, there are no lists of slots, because rows lie in slot order from the
  // first slot on.
  PageLists(std::vector<int> kv_heads, int num_pages, int num_groups, int num_rows);

  // Updates the lists of a layer's pages to those of the cache; returns whether any changed.
  // REQUIRES: no stream has more than num_pages pages.
  bool UpdatePages(const SequenceCache& cache, const BackendDevice& device, int layer);
  // Returns a layer's lists, [kv heads, num_pages]. A page's number is the number of its first row,
  // divided by kRowsPerPage.
  [[nodiscard]] std::span<const int32_t> PagesOfLayer(int layer) const;
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }

  // Updates the lists of slots, in order of position, to those of the cache. Appends the changed
  // ranges [begin, end) of Slots() to `changes`, and joins adjacent ones. REQUIRES: no group has
  // more than num_rows rows, and the cache has num_groups groups.
  struct Change {
    size_t begin = 0, end = 0;
  };
  void UpdateSlots(const SequenceCache& cache, std::vector<Change>* changes);
  // Returns the lists of slots, [groups, num_rows].
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }

  // Makes the next update report everything as changed.
  void Forget();

  // Returns whether the rows of every stream of the cache lie in slot order, from the first slot
  // on.
  [[nodiscard]] static bool InOrder(const SequenceCache& cache, int num_layers);

 private:
  const std::vector<int> kv_heads_;
  const size_t num_pages_, num_rows_, num_groups_;
  std::vector<size_t> first_stream_;  // [layers + 1]
  // Holds the addresses of the pages in each stream's list; nullopt: the stream was not listed yet.
  std::vector<std::optional<std::vector<const std::byte*>>> addresses_;
  std::vector<int32_t> pages_;
  std::vector<int32_t> slots_;
  std::vector<size_t> sizes_;  // [groups]: lengths of the lists of slots
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_PAGE_LISTS_H_
