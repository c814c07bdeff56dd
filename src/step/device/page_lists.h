// PageLists lists the pages of a device's memory in which a sequence's rows lie, and their slots.
// The device keeps the lists from step to step, and a step uploads what has changed. Streams that
// share a token table share its slots.
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

// Returns the rows of a stream that a device reads: all, or only the rows of T0 if the host attends
// to the others.
[[nodiscard]] RowsView RowsOnDevice(const SequenceCache& cache, int layer, int head);

class PageLists {
 public:
  // Makes lists of `num_pages` pages for each stream and of `num_rows` slots for each group;
  // `kv_heads` is [layers]. Elements beyond a stream's pages name the spare page, and beyond a
  // group's rows any slot. num_groups 0: rows lie in the order of slots, from the first on.
  PageLists(std::vector<int> kv_heads, int num_pages, int num_groups, int num_rows);

  // Makes the pages of a layer's streams those of the cache; returns whether any changed. REQUIRES:
  // no stream has more than num_pages.
  bool UpdatePages(const SequenceCache& cache, const BackendDevice& device, int layer);
  // Returns [kv heads, num_pages]: numbers of pages, which are the numbers of their first rows
  // divided by kRowsPerPage.
  [[nodiscard]] std::span<const int32_t> PagesOfLayer(int layer) const;
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }

  // Makes the slots those of the cache, in order of position; what of each group's changed, as
  // [begin, end) of Slots(), is added to `changes`, neighbours as one. REQUIRES: no group has more
  // than num_rows rows; as many groups as were given.
  struct Change {
    size_t begin = 0, end = 0;
  };
  void UpdateSlots(const SequenceCache& cache, std::vector<Change>* changes);
  // Returns the slots, [groups, num_rows].
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }

  // Makes the next update list everything.
  void Forget();

  // Returns whether all streams of the cache have their rows in the order of slots, from the first
  // on.
  [[nodiscard]] static bool InOrder(const SequenceCache& cache, int num_layers);

 private:
  const std::vector<int> kv_heads_;
  const size_t num_pages_, num_rows_, num_groups_;
  std::vector<size_t> first_stream_;  // [layers + 1]
  // Has the addresses of the listed pages of each stream; nullopt: nothing is listed.
  std::vector<std::optional<std::vector<const std::byte*>>> addresses_;
  std::vector<int32_t> pages_;
  std::vector<int32_t> slots_;
  std::vector<size_t> sizes_;  // [groups]: of the slots that are listed
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_PAGE_LISTS_H_
