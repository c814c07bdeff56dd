// DeviceT1 computes the steps of a device that read rows of T1, which lie outside the device's
// memory. It goes from attention to attention: it copies the rows of a layer to the device one
// layer ahead, or copies only the pages that a selector chooses by the layer's queries, or attends
// to rows on the host while the device attends to the others.
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
#include "src/step/work/staged_sequences.h"
#include "src/step/work/step_work.h"

namespace ebb {

class DeviceT1 {
 public:
  using OnThreads = HostAttention::OnThreads;
  // Makes a reader of T1 that reads it in the ways that `use` allows. REQUIRES: model, device and
  // inputs outlive this.
  DeviceT1(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
           std::unique_ptr<HostAttention> host_attention, OnThreads on_threads,
           DeviceInputs* inputs);

  // Return whether the host may attend to rows of T1, and whether the measured rates decide in
  // which steps it does.
  [[nodiscard]] bool MayCompute() const { return use_.MayCompute(); }
  [[nodiscard]] bool NeedsRates() const { return use_.NeedsRates(); }
  void AlwaysStream() { use_.t1_mode = T1Mode::kStream; }
  // Sets the rates at which T1 can be streamed or read by the host: from the rates file, or by
  // measuring. Without memory for measuring, T1 is always streamed.
  Status FindOrMeasureRates();

  // Chooses how each sequence of the step reads its rows of T1, and begins their access to them.
  Status Begin(const StepWork& work, StagedSequences* staged);
  // Returns whether the step reads T1 or a T2 on the host, so that Compute() has to compute it.
  [[nodiscard]] static bool IsFor(const StepWork& work);
  // Queues the graph's computation, part by part, with the copies and host work in between.
  Status Compute(const StepWork& work, const StagedSequences& staged, DeviceGraph* graph);
  [[nodiscard]] T1Mode mode() const { return mode_; }  // how the last step read T1
  // Returns the seconds that the last step took to select rows and to load them.
  [[nodiscard]] double select_seconds() const { return select_seconds_; }

 private:
  // kNoRows is the log-sum of a head without rows: so small that a softmax gives it no weight.
  static constexpr float kNoRows = -1e30f;
  // Choice is a selector's choice of rows for a kv head.
  struct Choice {
    std::vector<RowRange> ranges, foreseen;  // ranges is empty if all rows are read
    int64_t rows_unread = 0;
  };
  // HostShare is the host's part of a layer's attention for one sequence.
  struct HostShare {
    size_t index = 0;  // index among the graph's sequences
    std::vector<float> q, result;
    std::vector<float> weights;  // weights of the host; with own nodes: log-sums over all rows
  };

  // Returns whether the host computes (kCompute) or T1 is streamed (kStream) in a step of decoding.
  [[nodiscard]] T1Mode ChooseMode(std::span<const SequenceStep> sequences) const;
  // Returns how the sequence reads T1. `may_stay`: the host may attend to its rows of T1 in place.
  [[nodiscard]] T1Reading ReadingOf(const SequenceStep& sequence, bool may_stay) const;
  [[nodiscard]] bool MayReadInPlace(const SequenceStep& sequence) const;
  // Downloads an attention's queries for sequences with selectors, and the products with the
  // selector's vectors if the device computes them, and waits for them.
  void FetchQueries(const StepWork& work, int attention, const DeviceGraph& graph);
  // Lets the selector choose rows of a kv head and writes its choice. `products` are as
  // TakeRankProducts() takes them; empty: the host computes them from `queries`.
  void Choose(const SequenceStep& sequence, const BackendSequence& shape, int layer, int head,
              std::span<const float> queries, std::span<const float> products,
              Choice* choice) const;
  // Lets the sequence's selector choose rows by the queries of one attention, copies the pages of
  // T1 that hold the chosen rows to the device, and hides the other rows in the attention's mask.
  // `number` is the index of the sequence in the step.
  void SelectRows(const SequenceStep& sequence, size_t number, const StagedStep& staged,
                  int attention, DeviceGraph* graph);
  Status AttendOnHost(const StepWork& work, int attention, size_t part, DeviceGraph* graph);
  // Begins to download the weights by which the mass of the host's rows must be scaled.
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
  // Are work space of a step.
  std::vector<std::vector<float>> queries_;        // [sequences]: a layer's, for the selector
  std::vector<std::vector<float>> rank_products_;  // [sequences]: selector products of queries_
  std::vector<Choice> choices_;                    // [kv heads]: choices of a layer
  std::vector<HostShare> host_shares_;
  std::vector<HostAttention::Query> host_queries_;
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_T1_H_
