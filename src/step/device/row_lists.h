// RowLists lists, by their numbers in a device's buffer, the rows that a sequence sees. The device
// keeps the lists from step to step, and a step uploads the changes: mostly one row of each stream.
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
  // Makes lists of `num_rows` rows; `kv_heads` is [layers]. Lists are padded with the spare row.
  RowLists(std::vector<int> kv_heads, int num_rows);

  // Change is a range [begin, end) of rows that has changed in the lists of a layer's kv heads.
  struct Change {
    int begin = 0, end = 0;
    [[nodiscard]] bool operator==(const Change&) const = default;
  };
  // Update the lists for a step: call Begin(), then Update() for each layer from the first to the
  // last, then End(). Update() returns the changes of the layer's lists since the last step.
  // REQUIRES: no stream has more than num_rows rows.
  void Begin() { num_next_ = 0; }
  Change Update(const SequenceCache& cache, const BackendDevice& device, int layer);
  void End() { std::swap(tables_, next_); }
  // Lists a layer's rows again after its Update(), because the layer's pages have moved in memory.
  Change Rename(const SequenceCache& cache, const BackendDevice& device, int layer);
  // Returns the lists of a layer, [num_rows, kv heads].
  [[nodiscard]] std::span<const int32_t> OfLayer(int layer) const;
  // Makes the next step list everything.
  void Forget();

 private:
  // Table identifies the slots of a token table, which several streams may share.
  struct Table {
    const Slot* data = nullptr;
    std::vector<Slot> slots;
    size_t num_pages = 0;  // up to the last page in which a slot lies
    // Counts how many slots, from the first on, equal those of table `before` of the last step.
    int before = -1;
    size_t num_alike = 0;
  };
  struct Stream {
    int table = -1;  // index in tables_ (of the last step)
    std::vector<const std::byte*> pages;
  };
  // Returns the index in next_ of the table with these slots, which it adds if it is new.
  int TableOf(std::span<const Slot> slots);
  size_t NumAlike(int table, int before);

  const std::vector<int> kv_heads_;
  const int num_rows_;
  std::vector<int64_t> first_;        // [layers + 1]: where a layer begins in lists_
  std::vector<size_t> first_stream_;  // [layers]
  std::vector<int32_t> lists_;
  std::vector<Stream> streams_;
  std::vector<Table> tables_, next_;  // tables of the last step, and of the current one
  size_t num_next_ = 0;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_ROW_LISTS_H_
