// CompressedLists lists the places of a sequence's rows of T2 in a device's memory: the pages and
// the centre of each stream, and the slots of each group. The device keeps the lists from step to
// step; they change when rows move.
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

  // Changes names the lists that an update has changed.
  struct Changes {
    bool pages = false, slots = false, centres = false;
  };
  // Updates the lists to the rows of the cache. REQUIRES: every stream has fewer pages, and no
  // group more rows, than the lists have room for.
  [[nodiscard]] Changes Update(const SequenceCache& cache, const BackendDevice& device);
  // Returns, [streams, num_pages], the rows of the device's buffer at which pages begin. Lists are
  // padded with the spare page of zeros.
  [[nodiscard]] std::span<const int32_t> Pages() const { return pages_; }
  // Returns [groups, num_rows]: the slots of each group's rows, padded with slots of the lists'
  // last page.
  [[nodiscard]] std::span<const int32_t> Slots() const { return slots_; }
  // Returns [streams, head_dim]: the centre that is subtracted from each stream's keys; zeros if a
  // stream has none.
  [[nodiscard]] std::span<const float> Centres() const { return centres_; }

  // Makes the next Update() report all lists as changed.
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
