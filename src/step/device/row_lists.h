// RowLists lists the rows of a device's memory that a sequence sees. The device keeps the lists
// from step to step, and a step uploads what has changed: mostly one row of each stream.
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
  // Makes lists of `num_rows` rows; `kv_heads` is [layers]. Elements beyond a stream's rows name
  // the spare row.
  RowLists(std::vector<int> kv_heads, int num_rows);

  // Change is the rows [begin, end) of a layer's lists, of all its kv heads.
  struct Change {
    int begin = 0, end = 0;
    [[nodiscard]] bool operator==(const Change&) const = default;
  };
  // Update the lists for a step: Begin(), then Update() for each layer from the first to the last,
  // which returns what has changed in the layer's lists since the last step, then End(). REQUIRES:
  // no stream has more than num_rows rows.
  void Begin() { num_next_ = 0; }
  Change Update(const SequenceCache& cache, const BackendDevice& device, int layer);
  void End() { std::swap(tables_, next_); }
  // Lists the rows of a layer again that the step has updated, because its pages lie in other
  // places now.
  Change Rename(const SequenceCache& cache, const BackendDevice& device, int layer);
  // Returns the lists of a layer, [num_rows, kv heads].
  [[nodiscard]] std::span<const int32_t> OfLayer(int layer) const;
  // Makes the next step list everything.
  void Forget();

 private:
  // Table has the slots of a token table, which several streams may share.
  struct Table {
    const Slot* data = nullptr;
    std::vector<Slot> slots;
    size_t num_pages = 0;  // up to the last one that a slot is of
    // Counts the first slots that equal the slots of table `before` of the last step.
    int before = -1;
    size_t num_alike = 0;
  };
  struct Stream {
    int table = -1;  // of the last step's
    std::vector<const std::byte*> pages;
  };
  // Returns the index in next_ of the table of these slots.
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
