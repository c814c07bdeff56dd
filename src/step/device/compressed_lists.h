// Lists of the rows of T2 of a sequence that lie in a device's memory, there from step to step:
// pages and centres of streams, and slots of groups. They change when rows move.
#ifndef EBB_STEP_DEVICE_COMPRESSED_LISTS_H_
#define EBB_STEP_DEVICE_COMPRESSED_LISTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/device/backend_device.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class CompressedLists {
 public:
  // kv_heads: [layers]. num_pages: of each stream's list, num_rows: of each group's.
  CompressedLists(std::vector<int> kv_heads, int head_dim, int num_pages, int num_groups,
                  int num_rows);

  // Which lists are no longer those that the last update left.
  struct Changes {
    bool pages = false, slots = false, centres = false;
  };
  // Makes the lists those of the cache. REQUIRES: no list of pages is as long as there is
  // room for, and none of slots is longer.
  [[nodiscard]] Changes Update(const SequenceCache& cache, const BackendDevice& device);
  // [streams, num_pages]: the rows of the device's buffer that pages begin at. The spare page of
  // zeros follows a stream's pages.
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }
  // [groups, num_rows]. Slots of the last page of the lists follow a group's slots.
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }
  // [streams, head_dim]; zeros where a stream has none.
  [[nodiscard]] std::span<const float> Centres() const { return centres_; }

  // The next update says that everything has changed.
  void Forget() { is_known_ = false; }

 private:
  const std::vector<int> kv_heads_;
  const size_t head_dim_, num_pages_, num_rows_;
  std::vector<int32_t> pages_, slots_;
  std::vector<float> centres_;
  bool is_known_ = false;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_COMPRESSED_LISTS_H_
