// DeviceInputs uploads the inputs of a step to the tensors of its graph on a device: tokens, the
// places of new rows, masks, and lists of the rows that attention reads. It uploads only the
// changed parts of lists.
//
// Thread safety: one caller at a time; FillMask() and HideOthers() may be called by many.
#ifndef EBB_STEP_DEVICE_DEVICE_INPUTS_H_
#define EBB_STEP_DEVICE_DEVICE_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/policy.h"
#include "src/device/backend_device.h"
#include "src/step/device/device_graphs.h"
#include "src/step/work/step_work.h"

namespace ebb {

class DeviceInputs {
 public:
  // Uploads inputs of `model` to `device`. REQUIRES: both outlive this.
  DeviceInputs(const LoadedModel& model, BackendDevice* device) : model_(model), device_(device) {}

  // Uploads all inputs of the step but the lists of rows of T0 and T1, which SetLists() uploads.
  void Set(const StepWork& work, DeviceGraph* graph);
  // Upload the lists of the sequence's rows in T0 and T1, for all layers or for one. `reads_again`:
  // an earlier attention of this step has read the layer's rows, so that its list is rebuilt.
  void SetLists(const SequenceStep& sequence, DeviceGraph* graph);
  void SetListOfLayer(const SequenceStep& sequence, int layer, bool reads_again,
                      DeviceGraph* graph);

  // Returns the host's buffer for the masks of a layer, [kv heads, NumKeys()], of a sequence with
  // one token. UploadMasks() uploads them.
  [[nodiscard]] std::span<ggml_fp16_t> MasksOfLayer(size_t index, int layer,
                                                    const DeviceGraph& graph);
  void UploadMasks(size_t index, int layer, const DeviceGraph& graph);
  // Fills the mask of a kv head, [NumKeys(), tokens], with 0 for visible and kHidden for other
  // rows.
  static void FillMask(const SequenceStep& sequence, const BackendSequence& shape, int layer,
                       int kv_head, ggml_fp16_t* mask);
  // Hides in `mask` the rows, of `num_rows`, that no range contains, and returns how many; without
  // ranges it hides none.
  static int64_t HideOthers(std::span<const RowRange> ranges, size_t num_rows, ggml_fp16_t* mask);

 private:
  void SetNewRows(const StepWork& work, const DeviceGraph& graph);
  // Uploads to `to` the number of rows of each stream, which num_rows(layer, kv head) returns.
  template <typename NumRows>
  void UploadCounts(const NumRows& num_rows, std::vector<int32_t>* counts, ggml_tensor* to) const;
  void SetSlots(const SequenceStep& sequence, size_t index, DeviceGraph* graph);
  void SetCompressed(const SequenceStep& sequence, size_t index, DeviceGraph* graph);
  void SetRankVectors(const SequenceStep& sequence, size_t index, DeviceGraph* graph);
  void SetMask(const SequenceStep& sequence, size_t index, const DeviceGraph& graph);
  void UploadRows(size_t index, int layer, const RowLists::Change& change,
                  const DeviceGraph& graph) const;
  // Calls visit(layer, kv head) for all streams, in the order of the lists.
  template <typename Visitor>
  void ForEachStream(const Visitor& visit) const {
    for (int layer = 0; layer < model_.hparams.num_layers; ++layer) {
      for (int head = 0; head < model_.hparams.kv_heads[layer]; ++head) visit(layer, head);
    }
  }

  const LoadedModel& model_;
  BackendDevice* const device_;
  // Hold the data of asynchronous uploads until they end.
  std::vector<int32_t> new_rows_;
  std::vector<std::vector<ggml_fp16_t>> masks_;                   // [sequences]
  std::vector<std::vector<int32_t>> counts_, compressed_counts_;  // [sequences]
  std::vector<PageLists::Change> slot_changes_;
  std::vector<RankMirror::Change> rank_changes_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_INPUTS_H_
