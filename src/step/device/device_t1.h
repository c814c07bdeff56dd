// DeviceT1 computes the steps of a device that read rows which lie beyond its memory, attention by
// attention: it streams the rows of a layer to the device one layer ahead, loads the pages that a
// selector chooses by the layer's queries, or attends to rows on the host while the device attends
// to the others.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_T1_H_
#define EBB_STEP_DEVICE_DEVICE_T1_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/device/step_costs.h"
#include "src/step/device/device_graphs.h"
#include "src/step/device/device_inputs.h"
#include "src/step/device/device_use.h"
#include "src/step/device/host_attention.h"
#include "src/step/staged_sequences.h"
#include "src/step/step_work.h"

namespace ebb {

class DeviceT1 {
 public:
  using OnThreads = HostAttention::OnThreads;
  // Reads T1 as `use` allows. REQUIRES: model, device and inputs outlive this.
  DeviceT1(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
           std::unique_ptr<HostAttention> host_attention, OnThreads on_threads,
           DeviceInputs* inputs);

  // Return whether the host may attend to rows of T1, and whether rates decide when it does.
  [[nodiscard]] bool MayCompute() const { return use_.MayCompute(); }
  [[nodiscard]] bool NeedsRates() const { return use_.NeedsRates(); }
  void AlwaysStream() { use_.t1_mode = T1Mode::kStream; }
  // Finds out how fast the ways of reading T1 are: as kept in a file, or by measuring. Without
  // memory to measure, T1 is always streamed.
  Status FindOrMeasureRates();

  // Begins the access of the step's sequences to their rows of T1, and chooses how they read them.
  Status Begin(const StepWork& work, StagedSequences* staged);
  // Returns whether Compute() has to compute the step.
  [[nodiscard]] static bool IsFor(const StepWork& work);
  // Queues the computation of the graph, part by part.
  Status Compute(const StepWork& work, const StagedSequences& staged, DeviceGraph* graph);
  [[nodiscard]] T1Mode mode() const { return mode_; }  // of the last step
  // Returns how long the last step took to select rows and to load them.
  [[nodiscard]] double select_seconds() const { return select_seconds_; }

 private:
  // kNoRows is a logarithm of a sum so small that softmax gives it no weight.
  static constexpr float kNoRows = -1e30f;
  // Choice is what a selector chose for a kv head.
  struct Choice {
    std::vector<RowRange> ranges, foreseen;  // ranges: none where all rows are read
    int64_t rows_unread = 0;
  };
  // HostShare is the host's work in a layer for a sequence of which it attends to rows.
  struct HostShare {
    size_t index = 0;  // of the graph's sequences
    std::vector<float> q, result;
    std::vector<float> weights;  // or, of ebb's own nodes, logarithms of sums over all rows
  };

  // Returns kCompute or kStream for a step of decoding.
  [[nodiscard]] T1Mode ChooseMode(std::span<const SequenceStep> sequences) const;
  // Returns how the sequence reads T1. `may_stay`: the host may attend to its rows of T1 in place.
  [[nodiscard]] T1Reading ReadingOf(const SequenceStep& sequence, bool may_stay) const;
  [[nodiscard]] bool MayReadInPlace(const SequenceStep& sequence) const;
  // Downloads the queries of an attention for sequences with selectors, and their products if the
  // device computes them, and waits for them.
  void FetchQueries(const StepWork& work, int attention, const DeviceGraph& graph);
  // Lets the selector choose rows of a kv head. `products` are as TakeRankProducts() takes them;
  // empty: the host computes them.
  void Choose(const SequenceStep& sequence, const BackendSequence& shape, int layer, int head,
              std::span<const float> queries, std::span<const float> products,
              Choice* choice) const;
  // Lets the sequence's selector choose rows by the queries of one attention, copies the pages of
  // T1 that hold the chosen rows to the device, and hides the other rows in the attention's mask.
  // `number` is the sequence's place in the step.
  void SelectRows(const SequenceStep& sequence, size_t number, const StagedStep& staged,
                  int attention, DeviceGraph* graph);
  Status AttendOnHost(const StepWork& work, int attention, size_t part, DeviceGraph* graph);
  // Begins to copy the factor of the mass of rows that the host attended to.
  void FetchHostWeights(const DeviceGraph& graph, int attention, HostShare* of) const;
  void AddMassOfHost(const DeviceGraph& graph);

  const LoadedModel& model_;
  BackendDevice* const device_;
  DeviceUse use_;
  DeviceRates rates_;
  const AttentionShape shape_;
  const std::unique_ptr<HostAttention> host_attention_;
  const OnThreads on_threads_;
  DeviceInputs* const inputs_;
  T1Mode mode_ = T1Mode::kStream;
  double select_seconds_ = 0;
  // Are work space.
  std::vector<std::vector<float>> queries_;        // [sequences]: of a layer, for selectors
  std::vector<std::vector<float>> rank_products_;  // [sequences]: of these queries
  std::vector<Choice> choices_;                    // [kv heads]: of a layer
  std::vector<HostShare> host_shares_;
  std::vector<HostAttention::Query> host_queries_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_T1_H_
