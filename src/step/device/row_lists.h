// Which rows of a device's memory a sequence sees, as lists that lie there from step to step: kept
// up by what changed, which in most steps is one row of each stream.
#ifndef EBB_STEP_DEVICE_ROW_LISTS_H_
#define EBB_STEP_DEVICE_ROW_LISTS_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/device/backend_device.h"
#include "src/kv/sequence_cache.h"

namespace ebb {

class RowLists {
 public:
  // kv_heads: [layers]. num_rows: of each list; what is beyond a stream's rows names the spare row.
  RowLists(std::vector<int> kv_heads, int num_rows);

  // Rows [begin, end) of a layer's lists, of all its kv heads.
  struct Change {
    int begin = 0, end = 0;
    [[nodiscard]] bool operator==(const Change&) const = default;
  };
  // For each step: makes the lists those of the cache, layer by layer from the first to the last,
  // and says what of a layer's changed since the last step. REQUIRES: no stream has more than
  // num_rows rows.
  void Begin() { num_next_ = 0; }
  Change Update(const SequenceCache& cache, const BackendDevice& device, int layer);
  void End() { std::swap(tables_, next_); }
  // Names the rows of a layer that the step has updated once more, because its pages have come to
  // other places.
  Change Rename(const SequenceCache& cache, const BackendDevice& device, int layer);
  // The lists of a layer, [num_rows, kv heads].
  [[nodiscard]] std::span<const int32_t> OfLayer(int layer) const;
  // The next step lists everything.
  void Forget();

 private:
  // The slots of a token table, which several streams may share.
  struct Table {
    const Slot* data = nullptr;
    std::vector<Slot> slots;
    size_t num_pages = 0;  // up to the last one that a slot is of
    // How many of the first slots are those of the table `before` of the last step.
    int before = -1;
    size_t num_alike = 0;
  };
  struct Stream {
    int table = -1;  // of the last step's
    std::vector<const std::byte*> pages;
  };
  // Index of the table of these slots in `next_`.
  int TableOf(std::span<const Slot> slots);
  size_t NumAlike(int table, int before);

  const std::vector<int> kv_heads_;
  const int num_rows_;
  std::vector<int64_t> first_;        // [layers + 1]: into lists_
  std::vector<size_t> first_stream_;  // [layers]
  std::vector<int32_t> lists_;
  std::vector<Stream> streams_;
  std::vector<Table> tables_, next_;  // of the last step, and of this one
  size_t num_next_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_ROW_LISTS_H_
