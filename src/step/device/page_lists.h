// Which pages of a device's memory a sequence's rows lie in, and at which slots, as lists that lie
// there from step to step: kept up by what changed. Streams that share a token table share its
// slots.
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

// The rows of a stream that a device reads: all, or those of T0 while the host attends to the
// others.
[[nodiscard]] RowsView RowsOnDevice(const SequenceCache& cache, int layer, int head);

class PageLists {
 public:
  // kv_heads: [layers]. num_pages: of each stream's list, num_rows: of each group's; elements
  // beyond them name the spare page, or any slot. num_groups 0: rows lie in the order of slots,
  // from the first on.
  PageLists(std::vector<int> kv_heads, int num_pages, int num_groups, int num_rows);

  // Makes the pages of a layer's streams those of the cache; returns whether any changed. REQUIRES:
  // no stream has more than num_pages.
  bool UpdatePages(const SequenceCache& cache, const BackendDevice& device, int layer);
  // [kv heads, num_pages]: numbers of pages, that of their first row over kRowsPerPage.
  [[nodiscard]] std::span<const int32_t> PagesOfLayer(int layer) const;
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }

  // Makes the slots those of the cache, in order of position; what of each group's changed, as
  // [begin, end) of Slots(), is added to `changes`, neighbours as one. REQUIRES: no group has more
  // than num_rows rows; as many groups as were given.
  struct Change {
    size_t begin = 0, end = 0;
  };
  void UpdateSlots(const SequenceCache& cache, std::vector<Change>* changes);
  // [groups, num_rows].
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }

  // The next update lists everything.
  void Forget();

  // Whether all streams of the cache have their rows in the order of slots, from the first on.
  [[nodiscard]] static bool InOrder(const SequenceCache& cache, int num_layers);

 private:
  const std::vector<int> kv_heads_;
  const size_t num_pages_, num_rows_, num_groups_;
  std::vector<size_t> first_stream_;  // [layers + 1]
  // [streams]: of the pages that are listed; none: nothing is.
  std::vector<std::optional<std::vector<const std::byte*>>> addresses_;
  std::vector<int32_t> pages_;
  std::vector<int32_t> slots_;
  std::vector<size_t> sizes_;  // [groups]: of the slots that are listed
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_PAGE_LISTS_H_
