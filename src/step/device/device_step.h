// Steps on a device that a backend of ggml computes on: weights and rows lie in its memory, and all
// of a step is one graph there. The host says which rows are read and written, and gets logits and
// signals.
//
// A row's bits are the device's own: the same whatever slots rows lie in and however often a step
// is repeated, but not the processor's.
//
// Thread safety: one caller at a time.
#ifndef EBB_STEP_DEVICE_DEVICE_STEP_H_
#define EBB_STEP_DEVICE_DEVICE_STEP_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ebb/report.h"
#include "ebb/status.h"
#include "src/attention/attention.h"
#include "src/step/device/backend_attention.h"
#include "src/step/device/compressed_lists.h"
#include "src/step/device/device_use.h"
#include "src/step/device/device_weights.h"
#include "src/step/device/graph_part.h"
#include "src/step/device/host_attention.h"
#include "src/step/device/page_lists.h"
#include "src/step/device/row_lists.h"
#include "src/step/graph_cache.h"
#include "src/step/staged_sequences.h"
#include "src/step/step_backend.h"
#include "src/step/step_work.h"

namespace ebb {

class DeviceStep final : public StepBackend {
 public:
  using OnThreads = HostAttention::OnThreads;
  // Copies the weights. host_attention: for the host's rows of T1 and of T2. Errors: those of
  // DeviceWeights and of measuring how fast the ways of reading T1 are; Unsupported, naming the
  // operation, when the backend lacks one that the model or the tiers need. REQUIRES: model and
  // device outlive this; use.device() is not null.
  static Result<std::unique_ptr<DeviceStep>> Create(const LoadedModel& model, const DeviceUse& use,
                                                    const AttentionShape& shape,
                                                    std::unique_ptr<HostAttention> host_attention,
                                                    OnThreads on_threads);

  ~DeviceStep() override;

  // Errors: OutOfMemory when the device has no memory for the step; Internal when it was lost.
  Status Run(const StepWork& work, StepCosts* costs) override;
  [[nodiscard]] std::span<const float> logits(size_t i) const override;
  // The logits: a step leaves none for later.
  [[nodiscard]] std::span<const float> outputs() const override { return logits_; }
  [[nodiscard]] size_t OutputFloats() const override { return model_.hparams.vocab_size; }
  Status ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) override;
  [[nodiscard]] bool ReadsT2TokenByToken() const override { return !HoldsT2(); }
  [[nodiscard]] int64_t num_graphs_built() const override { return graphs_.num_built(); }
  [[nodiscard]] T1Mode t1_mode() const override { return t1_mode_; }
  [[nodiscard]] double select_seconds() const override { return select_seconds_; }
  [[nodiscard]] size_t weight_bytes_on_device() const override { return weights_->num_bytes(); }

 private:
  // Whether rows of T2 lie in the device's memory.
  [[nodiscard]] bool HoldsT2() const {
    return own_nodes_.records.head_dim > 0 || shape_.compressed.in_ggml_blocks;
  }
  // In a mask. Behind it nothing is left of a softmax's term; infinity times 0 would be none.
  static constexpr float kHidden = -60000.0f;
  // A logarithm of a sum, of which softmax leaves nothing.
  static constexpr float kNoRows = -1e30f;
  struct Shape {
    DecoderGraphOptions options;
    std::vector<BackendSequence> sequences;
    BackendAttention::Wanted wanted;
    [[nodiscard]] bool operator==(const Shape&) const = default;
  };
  struct Graph {
    Shape shape;
    BackendTensors tensors;
    // The rows in a sequence's tensors: one of both, and those of T2.
    struct Lists {
      std::optional<RowLists> rows;
      std::optional<PageLists> pages;
      std::optional<CompressedLists> compressed;
      std::shared_ptr<RankStore> ranks;  // null unless the device multiplies for its selector
    };
    std::vector<Lists> lists;  // by sequence
    std::unique_ptr<ggml_context, GgmlDeleter> list_context;
    std::unique_ptr<ggml_backend_buffer, GgmlDeleter> list_buffer;
    std::unique_ptr<BackendAttention> attention;
    std::unique_ptr<ggml_context, GgmlDeleter> context;
    DecoderGraph graph;
    // The graph in parts, cut as BackendTensors::cuts says; empty until needed.
    std::vector<GraphPart> parts;
  };

  DeviceStep(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
             std::unique_ptr<HostAttention> host_attention, OnThreads on_threads);
  // Builds, and lets go of, the graphs of a prompt's step, of a single token's and, where the host
  // may attend too, of one with its share, all with mass. What a policy wants besides (hidden
  // states, heads that see apart) is found missing by the first such step.
  Status CheckOperations();
  enum class RowsBelowT0 { kNone, kOnHost, kCompressed };  // those of the host, or T2 of the device
  Status CheckOperations(int num_tokens, RowsBelowT0 below);
  // How fast the ways of reading T1 are: as kept in a file, or measured.
  Status FindOrMeasureRates();
  [[nodiscard]] Shape ShapeOf(const StepWork& work) const;
  // shape: has its sequences and its followers.
  [[nodiscard]] DecoderGraphOptions OptionsFor(const Shape& shape, int num_tokens,
                                               int num_outputs) const;
  [[nodiscard]] BackendSequence Describe(const SequenceStep& sequence) const;
  // Returns whether all kv heads have as many rows in T2.
  static bool DescribeCompressed(const SequenceCache& cache, int num_layers, BackendSequence* to);
  static void DescribeRanks(const Selector& selector, const SequenceCache& cache,
                            BackendSequence* to);
  // How the sequence attends, by its number of tokens and whether the host adds to it.
  void ChooseAttention(BackendSequence* sequence) const;
  // may_stay: rows of T1 may be read where they lie.
  [[nodiscard]] T1Reading ReadingOf(const SequenceStep& sequence, bool may_stay) const;
  [[nodiscard]] bool MayReadInPlace(const SequenceStep& sequence) const;
  Status RunOnDevice(const StepWork& work, StagedSequences* staged, StepCosts* costs);
  Result<Graph*> GraphFor(const Shape& shape);
  // rows: BackendDevice::rows(); null: nothing was stored yet, and the graph can only be looked at.
  Result<Graph*> Build(const Shape& shape, ggml_tensor* rows);
  Status MakeLists(Graph* graph) const;
  // Finds a store for the vectors of each selector, or lets the host multiply.
  void UseRankStores(Shape* shape);
  [[nodiscard]] Status CheckSupported(const Graph& graph) const;
  [[nodiscard]] static size_t IndexOf(const Graph& graph, const SequenceStep& sequence);
  void SetInputs(const StepWork& work, Graph* graph);
  void SetNewRows(const StepWork& work, const Graph& graph);
  void SetCounts(const SequenceStep& sequence, size_t index, const Graph& graph);
  void SetLists(const SequenceStep& sequence, size_t index, Graph* graph);
  void SetSlots(const SequenceStep& sequence, size_t index, Graph* graph);
  void SetCompressed(const SequenceStep& sequence, size_t index, Graph* graph);
  void SetRankVectors(const SequenceStep& sequence, size_t index, Graph* graph);
  // reads_again: another attention of the step has read the layer before.
  void SetListOfLayer(const SequenceStep& sequence, size_t index, int layer, bool reads_again,
                      Graph* graph);
  void UploadRows(size_t index, int layer, const RowLists::Change& change,
                  const Graph& graph) const;
  void ForgetLists();
  static void MakeParts(Graph* graph);
  [[nodiscard]] Status Compute(ggml_cgraph* graph) const;
  // Attention by attention: rows of T1 are copied to the device ahead of their use, or as selectors
  // choose them by the queries.
  Status ComputeByLayer(const StepWork& work, const StagedSequences& staged, Graph* graph);
  // Waits for the queries of an attention, those of the sequences with selectors, and for their
  // products where the device computes them.
  void FetchQueries(const StepWork& work, int attention, const Graph& graph);
  // The choice of a selector for a kv head.
  struct Choice {
    std::vector<RowRange> ranges, foreseen;  // ranges: none where all rows are read
    int64_t rows_unread = 0;
  };
  // products: see TakeRankProducts(); empty: the host computes them.
  void Choose(const SequenceStep& sequence, const BackendSequence& shape, int layer, int head,
              std::span<const float> queries, std::span<const float> products,
              Choice* choice) const;
  // Hides the rows that are in none of the ranges, of `num_rows`, and returns how many; hides none
  // without a range.
  static int64_t HideOthers(std::span<const RowRange> ranges, size_t num_rows, ggml_fp16_t* mask);
  // Loads the pages of T1 with rows that the sequence's selector chooses in an attention by its
  // queries, and hides the other rows. number: of the sequence in the step.
  void SelectRows(const SequenceStep& sequence, size_t number, const StagedStep& staged,
                  int attention, Graph* graph);
  // The rows of an attention that the host attends to while the device attends to the others.
  struct HostShare;
  Status AttendOnHost(const StepWork& work, int attention, size_t part, Graph* graph);
  // The factor of the mass of rows that the host attended to.
  void FetchHostWeights(const Graph& graph, int attention, HostShare* of) const;
  void AddMassOfHost(const Graph& graph);
  Status ComputeStep(const StepWork& work, const StagedSequences& staged, StepCosts* costs);
  // Recurrent states: REQUIRES: the sequences have as many tokens, in their order.
  [[nodiscard]] bool HasStates() const { return model_.hparams.state_bytes > 0; }
  void ReserveStates(const StepWork& work);
  Status SetStates(const StepWork& work, Graph* graph);
  static void TakeStates(const StepWork& work, Graph* graph);
  void SetMask(const SequenceStep& sequence, size_t index, const Graph& graph);
  // The mask of a kv head, [NumKeys(), tokens].
  static void FillMask(const SequenceStep& sequence, const BackendSequence& shape, int layer,
                       int kv_head, ggml_fp16_t* mask);
  // Into one of `read_`, so that a copy may be under way while another is asked for.
  std::span<const float> Read(const ggml_tensor* tensor);
  // The queries and results that came to the host in a step, by layer.
  struct Fetched {
    using Spans = std::vector<std::span<const float>>;
    Spans q, k, v, k_before_rope, hidden, eviction_channels;
  };
  void FetchSignals(const StepWork& work, const Graph& graph);
  // The attention that stores the rows of a layer: the first that reads them.
  [[nodiscard]] int StoringAttention(int layer) const;
  void CopySignals(const SequenceStep& sequence, const Graph& graph, const Fetched& fetched,
                   SignalBuffers* signals) const;
  void TakeMass(const SequenceStep& sequence, const Graph& graph, size_t index,
                std::span<const float> mass_of_layers) const;

  const LoadedModel& model_;
  BackendDevice* const device_;
  DeviceUse use_;
  const AttentionShape shape_;
  // Whether single tokens attend by ebb's own nodes, and how the device runs them.
  const bool runs_row_attention_;
  const OwnNodes own_nodes_;
  const std::unique_ptr<HostAttention> host_attention_;
  const OnThreads on_threads_;
  T1Mode t1_mode_ = T1Mode::kStream;
  double select_seconds_ = 0;
  std::unique_ptr<DeviceWeights> weights_;
  GraphCache<Graph> graphs_;
  RankStores rank_stores_;
  uint64_t rows_generation_ = 0;  // of the device, when graphs were built
  uint64_t num_frees_ = 0;        // of the device, when lists were made
  // Work space of the host.
  std::vector<StagedStep> staged_steps_;                            // of StagedSequences
  std::unique_ptr<ggml_backend_buffer, GgmlDeleter> state_buffer_;  // of a step's sequences
  std::vector<std::byte*> states_;                                  // on the host, of the same
  std::vector<std::vector<float>> queries_;        // [sequences]: of a layer, for selectors
  std::vector<std::vector<float>> rank_products_;  // [sequences]: of these queries
  std::vector<RankMirror::Change> rank_changes_;
  std::vector<Choice> choices_;  // [kv heads]: of a layer
  std::vector<int32_t> new_rows_;
  std::vector<std::vector<ggml_fp16_t>> masks_;
  std::vector<std::vector<int32_t>> counts_, compressed_counts_;
  // The host's work in a layer for a sequence of which it attends to rows.
  struct HostShare {
    size_t index = 0;  // of the graph's sequences
    std::vector<float> q, result;
    std::vector<float> weights;  // or, of ebb's own nodes, logarithms of sums over all rows
  };
  std::vector<HostShare> host_shares_;
  std::vector<HostAttention::Query> host_queries_;
  std::vector<PageLists::Change> slot_changes_;
  std::vector<float> logits_;
  // Each tensor that a step reads has one, which stays for the next step.
  struct ReadBuffer {
    BackendDevice::BufferHandle pinned;
    std::vector<float> plain;
    float* data = nullptr;
    size_t size = 0;
  };
  [[nodiscard]] ReadBuffer MakeReadBuffer(size_t size) const;
  std::vector<ReadBuffer> read_;
  size_t num_read_ = 0;  // in this step
};

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_DEVICE_STEP_H_
