// CompressedLists lists the rows of T2 of a sequence that lie in a device's memory: pages and
// centres of streams, and slots of groups. The device keeps the lists from step to step; they
// change when rows move.
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
  // Makes lists of `num_pages` pages for each stream and of `num_rows` slots for each group;
  // `kv_heads` is [layers].
  CompressedLists(std::vector<int> kv_heads, int head_dim, int num_pages, int num_groups,
                  int num_rows);

  // Changes says which lists an update has changed.
  struct Changes {
    bool pages = false, slots = false, centres = false;
  };
  // Makes the lists those of the cache. REQUIRES: no list of pages is as long as there is
  // room for, and none of slots is longer.
  [[nodiscard]] Changes Update(const SequenceCache& cache, const BackendDevice& device);
  // Returns [streams, num_pages]: the rows of the device's buffer at which pages begin. The spare
  // page of zeros follows a stream's pages.
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }
  // Returns [groups, num_rows]: slots. Slots of the last page of the lists follow a group's slots.
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }
  // Returns [streams, head_dim]: centres; zeros if a stream has none.
  [[nodiscard]] std::span<const float> Centres() const { return centres_; }

  // Makes the next update say that everything has changed.
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
