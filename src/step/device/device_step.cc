#include "src/step/device/device_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "src/base/sanitizers.h"
#include "src/step/device/ggml_rows.h"
#include "src/step/device/rates_file.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTensorsPerNode = 3;  // views and inputs too

int64_t SumOf(const std::vector<int>& numbers) {
  int64_t sum = 0;
  for (const int number : numbers) sum += number;
  return sum;
}

bool Selects(const StepWork& work) {
  return std::ranges::any_of(work.sequences,
                             [](const SequenceStep& s) { return s.selector != nullptr; });
}

bool HostAttends(const StepWork& work) {
  return std::ranges::any_of(work.sequences,
                             [](const SequenceStep& s) { return HostAttention::IsFor(*s.cache); });
}

// Lengths of the lists of rows that the device reads, by (layer, kv head) pair.
struct Lengths {
  size_t least = 0, most = 0;
};

Lengths LengthsOnDevice(const SequenceCache& cache, int num_layers) {
  const size_t first = RowsOnDevice(cache, 0, 0).slots.size();
  Lengths lengths = {.least = first, .most = first};
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      const size_t length = RowsOnDevice(cache, layer, head).slots.size();
      lengths.least = std::min(lengths.least, length);
      lengths.most = std::max(lengths.most, length);
    }
  }
  return lengths;
}

// Lists of pages are rounded up so: pages come and go by a few.
constexpr int kPagesOfList = 16;

int RoundUp(size_t number, int step) { return (static_cast<int>(number) + step - 1) / step * step; }

// Positions are the same in all streams that share a table.
bool AllSeeAlike(const SequenceCache& cache) {
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    if (cache.layout().WindowOf(group) > 0) return false;
    if (cache.positions(group).size() != cache.positions(0).size()) return false;
    if (cache.views().num_full_rows(group) != cache.views().num_full_rows(0)) return false;
  }
  return true;
}

// Whether a single token may not see all rows that there are.
bool HidesRows(const SequenceCache& cache, int num_layers) {
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    if (cache.layout().WindowOf(group) > 0) return true;
  }
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      if (!cache.views().View(layer, head).last_visible.empty()) return true;
    }
  }
  return false;
}

OwnNodes OwnNodesOf(const BackendDevice& device, bool are_run, const CompressedFormat& compressed) {
  OwnNodes nodes;
  if (device.BackendName() == "CUDA") {
    nodes.row_attention.launch = CudaRowAttention();
    nodes.compressed_fold.launch = CudaCompressedFold();
    nodes.unpack_rows.launch = CudaUnpackRows();
  }
  const bool has_records = compressed.head_dim > 0 && !compressed.in_ggml_blocks;
  if (are_run && has_records) nodes.records = RecordFormatOf(compressed);
  return nodes;
}

}  // namespace

DeviceStep::DeviceStep(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
                       std::unique_ptr<HostAttention> host_attention, OnThreads on_threads)
    : model_(model),
      device_(use.device()),
      use_(use),
      shape_(shape),
      runs_row_attention_(RunsRowAttention(*device_, model)),
      own_nodes_(OwnNodesOf(*device_, runs_row_attention_, shape.compressed)),
      host_attention_(std::move(host_attention)),
      on_threads_(std::move(on_threads)),
      graphs_(ggml_backend_get_default_buffer_type(device_->backend())),
      rank_stores_([this](const RankStore* store) {
        graphs_.DropIf([&](const Graph& graph) {
          return std::ranges::any_of(
              graph.lists, [&](const Graph::Lists& lists) { return lists.ranks.get() == store; });
        });
      }) {}

Result<std::unique_ptr<DeviceStep>> DeviceStep::Create(
    const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
    std::unique_ptr<HostAttention> host_attention, OnThreads on_threads) {
  std::unique_ptr<DeviceStep> step(
      new DeviceStep(model, use, shape, std::move(host_attention), std::move(on_threads)));
  EBB_ASSIGN_OR_RETURN(step->weights_, DeviceWeights::Create(model, use.device()));
  EBB_RETURN_IF_ERROR(use.device()->Call([&] { return step->CheckOperations(); }));
  if (step->use_.NeedsRates()) EBB_RETURN_IF_ERROR(step->FindOrMeasureRates());
  return step;
}

Status DeviceStep::CheckOperations(int num_tokens, RowsBelowT0 below) {
  BackendSequence sequence = {.num_tokens = num_tokens, .num_rows = kRowsOfDeviceStep};
  sequence.adds_host = below == RowsBelowT0::kOnHost;
  if (below == RowsBelowT0::kCompressed) {
    sequence.num_compressed = kRowsOfDeviceStep;
    sequence.num_compressed_pages = kRowsOfDeviceStep / kRowsPerPage + 1;
    sequence.compressed_groups = 1;
    sequence.groups.assign(model_.hparams.num_layers, {0, 0});
  }
  ChooseAttention(&sequence);
  sequence.is_uniform = model_.shape.SmallestWindow() == 0;
  sequence.mass = BackendSequence::Mass::kPerKvHead;
  Shape shape;
  shape.sequences.push_back(sequence);
  shape.wanted.queries = sequence.adds_host;
  shape.options = OptionsFor(shape, num_tokens, 1);
  return Build(shape, nullptr).status();
}

Status DeviceStep::CheckOperations() {
  const bool has_t2 = HoldsT2();
  const auto below = has_t2 ? RowsBelowT0::kCompressed : RowsBelowT0::kNone;
  Status status = CheckOperations(2, below);
  if (status.ok()) status = CheckOperations(1, below);
  const bool has_t2_on_host = !has_t2 && shape_.compressed.head_dim > 0;
  if (status.ok() && (has_t2_on_host || use_.MayCompute())) {
    status = CheckOperations(1, RowsBelowT0::kOnHost);
    if (!status.ok() && !has_t2_on_host && use_.NeedsRates()) {
      // There is no choice then.
      use_ = DeviceUse(device_, {.t1_mode = T1Mode::kStream});
      status = OkStatus();
    }
  }
  graphs_.Clear();
  return status;
}

Status DeviceStep::FindOrMeasureRates() {
  const std::string& path = use_.rates_file();
  const auto description =
      ggml_backend_dev_description(ggml_backend_get_device(device_->backend()));
  const std::string name =
      fmt::format("{}, {}, {}", device_->name(), description, host_attention_->Description());
  std::optional<DeviceRates> rates;
  if (!path.empty()) rates = FindRates(path, name);
  if (!rates.has_value()) {
    const Status status = device_->Call([&]() -> Status {
      EBB_ASSIGN_OR_RETURN(const double host_rate, host_attention_->MeasureBytesPerSecond());
      EBB_ASSIGN_OR_RETURN(rates, MeasureRates(device_, host_rate));
      return OkStatus();
    });
    if (status.code() == StatusCode::kOutOfMemory) {
      // Without room for measuring all is streamed.
      use_ = DeviceUse(device_, {.t1_mode = T1Mode::kStream});
      return OkStatus();
    }
    EBB_RETURN_IF_ERROR(status);
    if (!path.empty()) (void)KeepRates(path, name, *rates);
  }
  use_.SetRates(*rates);
  return OkStatus();
}

T1Reading DeviceStep::ReadingOf(const SequenceStep& sequence, bool may_stay) const {
  if (sequence.selector != nullptr) return T1Reading::kSelected;
  if (may_stay && MayReadInPlace(sequence)) return T1Reading::kInPlace;
  return sequence.keeps_cached_t1 ? T1Reading::kStagedAndCached : T1Reading::kStaged;
}

// Rows that are hidden from a token are not separated by tiers.
bool DeviceStep::MayReadInPlace(const SequenceStep& sequence) const {
  return sequence.num_tokens() == 1 && sequence.cache->page_bytes(Tier::kT1) > 0 &&
         !HidesRows(*sequence.cache, model_.hparams.num_layers);
}

DeviceStep::~DeviceStep() {
  if (!device_->IsLost()) return;
  if (weights_ != nullptr) weights_->Leak();
  for (Graph& graph : graphs_.graphs()) Leak(&graph.list_buffer);
  rank_stores_.Leak();
  for (ReadBuffer& buffer : read_) Leak(&buffer.pinned);
  Leak(&state_buffer_);
  graphs_.buffers().Leak();
}

void DeviceStep::ChooseAttention(BackendSequence* sequence) const {
  sequence->by_row_attention = runs_row_attention_ && sequence->num_tokens == 1;
  sequence->is_eager = !sequence->by_row_attention &&
                       (sequence->adds_host || device_->attention() == DeviceAttention::kEager);
}

bool DeviceStep::DescribeCompressed(const SequenceCache& cache, int num_layers,
                                    BackendSequence* to) {
  const size_t first_rows = cache.views().Compressed(0, 0).size();
  size_t least_rows = first_rows, most_rows = first_rows, most_pages = 0;
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      const size_t rows = cache.views().Compressed(layer, head).size();
      least_rows = std::min(least_rows, rows);
      most_rows = std::max(most_rows, rows);
      most_pages = std::max(most_pages, cache.views().NumCompressedPages(layer, head));
    }
  }
  const size_t column_of_host = to->adds_host && to->is_eager ? 1 : 0;
  to->num_compressed = RoundUp(most_rows + column_of_host, kRowsOfDeviceStep);
  to->num_compressed_pages = RoundUp(most_pages + 1, kPagesOfList);
  to->compressed_groups = cache.layout().num_groups();
  return least_rows == most_rows;
}

void DeviceStep::DescribeRanks(const Selector& selector, const SequenceCache& cache,
                               BackendSequence* to) {
  const auto* const vectors = dynamic_cast<const RankVectors*>(&selector);
  if (vectors == nullptr) return;
  size_t most_pages = 0;
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    most_pages = std::max(most_pages, vectors->NumRankPages(group));
  }
  if (most_pages == 0) return;
  to->ranks = RankRoom::Of(vectors->NumRankKeys(), most_pages);
  to->rank_selector = vectors->RankId();
  to->rank_scale = vectors->RankScale();
}

BackendSequence DeviceStep::Describe(const SequenceStep& sequence) const {
  const SequenceCache& cache = *sequence.cache;
  const int num_layers = model_.hparams.num_layers;
  BackendSequence described = {.first_token = sequence.first_token,
                               .num_tokens = sequence.num_tokens()};
  described.adds_host = HostAttention::IsFor(cache);
  ChooseAttention(&described);
  const bool hides_rows =
      (described.by_row_attention || described.adds_host) && HidesRows(cache, num_layers);
  const bool has_compressed =
      cache.views().HasCompressedRows() && cache.views().CompressedOnDevice();
  const bool have_as_many_compressed =
      !has_compressed || DescribeCompressed(cache, num_layers, &described);
  const Lengths lengths = described.adds_host || has_compressed
                              ? LengthsOnDevice(cache, num_layers)
                              : Lengths{.most = cache.tables().max_rows()};
  // It is the last one, behind rows of T2.
  const size_t column_of_host =
      described.adds_host && described.is_eager && !has_compressed ? 1 : 0;
  described.num_rows =
      RoundUp(std::max<size_t>(lengths.most + column_of_host, 1), kRowsOfDeviceStep);
  described.has_mask = !described.by_row_attention || sequence.selector != nullptr || hides_rows;
  // If a step has several tokens, the rows that each of them sees may differ by group, even where
  // groups have as many rows.
  const bool sees_alike =
      described.adds_host ? lengths.least == lengths.most && have_as_many_compressed && !hides_rows
                          : AllSeeAlike(cache) &&
                                (sequence.num_tokens() == 1 ||
                                 (cache.layout().num_groups() == 1 && !sequence.has_expiring_rows));
  described.is_uniform = !described.has_mask || (sequence.selector == nullptr && sees_alike);
  const bool in_order = PageLists::InOrder(cache, num_layers);
  const bool gathers_pages = in_order && device_->GathersPages();
  if (device_->HasPageNumbers() && (gathers_pages || described.by_row_attention)) {
    described.num_pages = described.num_rows / kRowsPerPage;
    if (!in_order) {
      described.num_groups = cache.layout().num_groups();
      described.num_pages = RoundUp(cache.views().most_pages(), kPagesOfList);
    }
  }
  if (sequence.selector != nullptr) DescribeRanks(*sequence.selector, cache, &described);
  for (int layer = 0; layer < num_layers; ++layer) {
    if (described.num_groups == 0 && !has_compressed) break;
    const int first = cache.layout().GroupOf(layer, 0);
    const int step =
        cache.layout().NumKvHeads(layer) > 1 ? cache.layout().GroupOf(layer, 1) - first : 0;
    described.groups.emplace_back(first, step);
  }
  if (!sequence.signals->wants_mass()) return described;
  using Mass = BackendSequence::Mass;
  const MassNeed need = sequence.signals->needs().mass;
  // Which need not be the cache's: a lossless session's are its draft's.
  const bool of_layers =
      need == MassNeed::kSummed && sequence.signals->granularity() != Granularity::kHead;
  described.mass = need == MassNeed::kPerQueryHead           ? Mass::kPerQueryHead
                   : of_layers && described.by_row_attention ? Mass::kPerLayer
                                                             : Mass::kPerKvHead;
  return described;
}

DeviceStep::Shape DeviceStep::ShapeOf(const StepWork& work) const {
  Shape shape;
  SignalNeeds needs;
  for (const SequenceStep& sequence : work.sequences) {
    shape.sequences.push_back(Describe(sequence));
    sequence.ForEachSignals(
        [&](const SignalBuffers* signals) { needs = Union(needs, signals->needs()); });
    shape.wanted.num_followers =
        std::max(shape.wanted.num_followers, static_cast<int>(sequence.followers.size()));
  }
  shape.wanted.keys = needs.keys;
  shape.wanted.values = needs.values;
  shape.wanted.queries = needs.num_recent_queries > 0 || Selects(work) || HostAttends(work);
  // Inputs of attention are for sequences in the order of their tokens.
  std::ranges::sort(shape.sequences, {}, &BackendSequence::first_token);
  shape.options = OptionsFor(shape, static_cast<int>(work.tokens.size()),
                             static_cast<int>(work.output_rows.size()));
  // Other graphs do not depend on the number of sequences.
  if (HasStates()) shape.options.num_sequences = static_cast<int>(work.sequences.size());
  shape.options.hidden_layers = needs.hidden_layers;
  shape.options.keys_before_rope = needs.keys_before_rope;
  shape.options.eviction_logits = needs.eviction_logits;
  return shape;
}

DecoderGraphOptions DeviceStep::OptionsFor(const Shape& shape, int num_tokens,
                                           int num_outputs) const {
  return {.num_tokens = num_tokens,
          .num_outputs = num_outputs,
          .takes_embeddings = true,
          .attention_nodes_per_layer =
              BackendAttention::NodesPerLayer(model_, shape.sequences, shape.wanted.num_followers)};
}

void DeviceStep::UseRankStores(Shape* shape) {
  rank_stores_.BeginStep();
  for (BackendSequence& sequence : shape->sequences) {
    if (sequence.ranks.num_pages == 0) continue;
    if (rank_stores_.Use(device_->backend(), sequence.rank_selector, sequence.ranks,
                         static_cast<int>(SumOf(model_.hparams.kv_heads)),
                         model_.hparams.head_dim) != nullptr) {
      continue;
    }
    sequence.ranks = {};
    sequence.rank_selector = 0;
    sequence.rank_scale = 0;
  }
}

Status DeviceStep::MakeLists(Graph* graph) const {
  const size_t num_sequences = graph->shape.sequences.size();
  graph->list_context.reset(ggml_init({.mem_size = (5 * num_sequences + 2) * ggml_tensor_overhead(),
                                       .mem_buffer = nullptr,
                                       .no_alloc = true}));
  if (graph->list_context == nullptr) return OutOfMemory("no memory for lists of rows");
  const int64_t heads = SumOf(model_.hparams.kv_heads);
  graph->tensors.sequences.resize(num_sequences);
  for (size_t i = 0; i < num_sequences; ++i) {
    const BackendSequence& sequence = graph->shape.sequences[i];
    const bool by_pages = sequence.num_pages > 0;
    BackendTensors::OfSequence& tensors = graph->tensors.sequences[i];
    tensors.lists = ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_I32,
                                       heads * (by_pages ? sequence.num_pages : sequence.num_rows));
    Graph::Lists& lists = graph->lists.emplace_back();
    if (by_pages) {
      lists.pages.emplace(model_.hparams.kv_heads, sequence.num_pages, sequence.num_groups,
                          sequence.num_rows);
    } else {
      lists.rows.emplace(model_.hparams.kv_heads, sequence.num_rows);
    }
    if (sequence.num_groups > 0) {
      tensors.slots = ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_I32,
                                         int64_t{sequence.num_groups} * sequence.num_rows);
    }
    const int head_dim = model_.hparams.head_dim;
    if (sequence.ranks.num_pages > 0) {
      lists.ranks = rank_stores_.Find(sequence.rank_selector, sequence.ranks);
      tensors.rank_vectors = lists.ranks->vectors;
    }
    if (sequence.num_compressed == 0) continue;
    lists.compressed.emplace(model_.hparams.kv_heads, head_dim, sequence.num_compressed_pages,
                             sequence.compressed_groups, sequence.num_compressed);
    tensors.compressed_pages = ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_I32,
                                                  heads * sequence.num_compressed_pages);
    tensors.compressed_slots =
        ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_I32,
                           int64_t{sequence.compressed_groups} * sequence.num_compressed);
    tensors.centres =
        ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_F32, heads * head_dim);
    if (shape_.compressed.in_ggml_blocks && graph->tensors.rotation == nullptr) {
      graph->tensors.rotation =
          ggml_new_tensor_2d(graph->list_context.get(), GGML_TYPE_F32, head_dim, head_dim);
    }
  }
  graph->list_buffer.reset(
      ggml_backend_alloc_ctx_tensors(graph->list_context.get(), device_->backend()));
  if (graph->list_buffer == nullptr) {
    return OutOfMemory("the device has no memory for lists of rows");
  }
  if (graph->tensors.rotation != nullptr) {
    const std::vector<float> rotation = RotationMatrix(model_.hparams.head_dim);
    ggml_backend_tensor_set(graph->tensors.rotation, rotation.data(), 0,
                            rotation.size() * sizeof(float));
  }
  return OkStatus();
}

Result<DeviceStep::Graph*> DeviceStep::Build(const Shape& shape, ggml_tensor* rows) {
  graphs_.MakeRoom(kKeptDeviceGraphs, [](const Graph&) { return true; });
  std::list<Graph> made(1);
  Graph& graph = made.front();
  graph.shape = shape;
  EBB_RETURN_IF_ERROR(MakeLists(&graph));
  const int num_nodes = DecoderGraphMaxNodes(model_, shape.options.attention_nodes_per_layer);
  graph.context = MakeGraphContext(static_cast<size_t>(num_nodes), kTensorsPerNode);
  if (graph.context == nullptr) return OutOfMemory("no memory for a graph");
  ggml_context* const context = graph.context.get();
  if (rows == nullptr) {
    rows = ggml_new_tensor_2d(context, GGML_TYPE_F16, model_.hparams.head_dim, 3 * kRowsPerPage);
  }
  graph.attention =
      std::make_unique<BackendAttention>(weights_->model(), rows, own_nodes_, shape_.compressed,
                                         graph.shape.sequences, shape.wanted, &graph.tensors);
  // Tensors that lie side by side before all that layers use, and stay: none leaves a hole.
  const auto kept = [&](ggml_type type, int64_t columns, int64_t rows) {
    ggml_tensor* tensor = ggml_new_tensor_2d(context, type, columns, rows);
    ggml_set_input(tensor);
    ggml_set_output(tensor);
    return tensor;
  };
  const int64_t heads = SumOf(model_.hparams.kv_heads);
  graph.tensors.new_rows =
      kept(GGML_TYPE_I32, heads * shape.options.num_tokens, 1 + shape.wanted.num_followers);
  for (size_t i = 0; i < shape.sequences.size(); ++i) {
    const BackendSequence& sequence = shape.sequences[i];
    BackendTensors::OfSequence& tensors = graph.tensors.sequences[i];
    if (sequence.has_mask) {
      tensors.mask = kept(
          GGML_TYPE_F16, sequence.NumKeys(),
          sequence.num_tokens * (sequence.is_uniform ? int64_t{1} : heads) + kMaskPaddingTokens);
    }
    if (sequence.by_row_attention) tensors.counts = kept(GGML_TYPE_I32, heads, 1);
    if (sequence.num_compressed > 0 && own_nodes_.records.head_dim > 0) {
      tensors.compressed_counts = kept(GGML_TYPE_I32, heads, 1);
    }
    if (sequence.ranks.num_pages > 0) {
      tensors.rank_products =
          kept(GGML_TYPE_F32, sequence.ranks.NumVectors(), model_.hparams.num_q_heads);
    }
    if (sequence.adds_host) {
      tensors.host = kept(GGML_TYPE_F32, static_cast<int64_t>(host_attention_->ResultSize()), 1);
    }
    if (sequence.mass == BackendSequence::Mass::kNone) continue;
    const int num_layers = model_.hparams.num_layers;
    tensors.mass = kept(GGML_TYPE_F32, sequence.NumKeys(),
                        graph.attention->FirstMassArray(sequence.mass, num_layers));
    if (sequence.adds_host) {
      // Layers at places that every backend can copy to.
      constexpr int kFloats = 64;
      tensors.host_weights = kept(GGML_TYPE_F32, RoundUp(model_.hparams.num_q_heads, kFloats),
                                  model_.shape.NumAttentions());
    }
  }
  EBB_ASSIGN_OR_RETURN(graph.graph, BuildDecoderGraph(weights_->model(), context,
                                                      graph.shape.options, *graph.attention));
  EBB_RETURN_IF_ERROR(CheckSupported(graph));
  return graphs_.Add(std::move(made));
}

Status DeviceStep::CheckSupported(const Graph& graph) const {
  const bool adds_host = std::ranges::any_of(graph.shape.sequences, &BackendSequence::adds_host);
  for (int i = 0; i < ggml_graph_n_nodes(graph.graph.graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph.graph.graph, i);
    if (ggml_backend_supports_op(device_->backend(), node)) continue;
    const ggml_tensor* first = node->src[0];
    return Unsupported(fmt::format(
        "device {} cannot compute {} of {} [{}, {}, {}, {}], which this model needs{}",
        device_->name(), ggml_op_desc(node),
        first == nullptr ? "nothing" : ggml_type_name(first->type), node->ne[0], node->ne[1],
        node->ne[2], node->ne[3], adds_host ? " with rows attended to on the host" : ""));
  }
  return OkStatus();
}

Result<DeviceStep::Graph*> DeviceStep::GraphFor(const Shape& shape) {
  // Graphs name places in the buffer of rows.
  if (rows_generation_ != device_->generation()) {
    graphs_.DropIf([](const Graph&) { return true; });
    rows_generation_ = device_->generation();
  }
  Graph* graph = graphs_.Find(shape);
  if (graph == nullptr) {
    assert(device_->rows() != nullptr);
    EBB_ASSIGN_OR_RETURN(graph, Build(shape, device_->rows()));
  }
  if (graphs_.Hold(*graph)) return graph;
  return OutOfMemory(fmt::format("device {} has no memory for a step of {} tokens", device_->name(),
                                 shape.options.num_tokens));
}

size_t DeviceStep::IndexOf(const Graph& graph, const SequenceStep& sequence) {
  return static_cast<size_t>(std::ranges::find(graph.shape.sequences, sequence.first_token,
                                               &BackendSequence::first_token) -
                             graph.shape.sequences.begin());
}

Status DeviceStep::Run(const StepWork& work, StepCosts* costs) {
  Status status;
  // Ends behind the handler: copies from and to work space may be under way until then.
  StagedSequences staged(&staged_steps_);
  try {
    status = device_->Call([&] { return RunOnDevice(work, &staged, costs); });
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("no memory for a step");
    const Status waited = device_->Call([&] {
      ggml_backend_synchronize(device_->backend());
      return OkStatus();
    });
    if (!waited.ok()) status = waited;
  }
  if (!status.ok()) {
    // Rows and vectors on the device may be half written.
    ForgetLists();
    rank_stores_.ForgetVectors();
  }
  return status;
}

void DeviceStep::ForgetLists() {
  for (Graph& graph : graphs_.graphs()) {
    for (Graph::Lists& lists : graph.lists) {
      if (lists.rows.has_value()) lists.rows->Forget();
      if (lists.pages.has_value()) lists.pages->Forget();
      if (lists.compressed.has_value()) lists.compressed->Forget();
    }
  }
}

Status DeviceStep::RunOnDevice(const StepWork& work, StagedSequences* staged, StepCosts* costs) {
  for (const SequenceStep& sequence : work.sequences) {
    sequence.cache->FindAddresses();
    for (const Follower& follower : sequence.followers) follower.cache->FindAddresses();
    if (sequence.num_tokens() == 1 || !HostAttention::HasCompressedRows(*sequence.cache)) continue;
    return Internal(
        fmt::format("a step of {} tokens of a sequence with rows in T2", sequence.num_tokens()));
  }
  select_seconds_ = 0;
  const bool may_stay = use_.Choose(work.sequences, shape_) == T1Mode::kCompute;
  for (const SequenceStep& sequence : work.sequences) {
    EBB_RETURN_IF_ERROR(staged->Add(sequence, ReadingOf(sequence, may_stay)));
  }
  const auto reads_in_place = [](const SequenceStep& s) { return s.cache->views().ReadsInPlace(); };
  t1_mode_ =
      std::ranges::any_of(work.sequences, reads_in_place) ? T1Mode::kCompute : T1Mode::kStream;
  const Status computed = ComputeStep(work, *staged, costs);
  const Status ended = staged->End();
  return computed.ok() ? ended : computed;
}

Status DeviceStep::Compute(ggml_cgraph* graph) const {
  const ggml_status status = ggml_backend_graph_compute_async(device_->backend(), graph);
  if (status == GGML_STATUS_SUCCESS) return OkStatus();
  return Internal(
      fmt::format("device {} failed a step: {}", device_->name(), ggml_status_to_string(status)));
}

void DeviceStep::MakeParts(Graph* graph) {
  if (!graph->parts.empty()) return;
  int begin = 0;
  for (const int end : graph->tensors.cuts) {
    graph->parts.push_back(PartOf(graph->graph.graph, begin, end));
    begin = end;
  }
  graph->parts.push_back(PartOf(graph->graph.graph, begin, ggml_graph_n_nodes(graph->graph.graph)));
}

// Launches what of the layer does not wait for the host, `part`, and attends to the host's rows
// meanwhile; what comes of it joins the rest. Once the queries are here the layer before has ended,
// and with it the inputs of its rows' mass.
Status DeviceStep::AttendOnHost(const StepWork& work, int attention, size_t part, Graph* graph) {
  ggml_backend_t backend = device_->backend();
  const size_t size = size_t(shape_.num_q_heads) * shape_.format.head_dim;
  if (attention == 0) host_shares_.resize(work.sequences.size());
  host_queries_.clear();
  for (const SequenceStep& sequence : work.sequences) {
    if (!HostAttention::IsFor(*sequence.cache)) continue;
    HostShare& of = host_shares_[host_queries_.size()];
    of.index = IndexOf(*graph, sequence);
    of.q.resize(size);
    of.weights.resize(shape_.num_q_heads);
    ggml_backend_tensor_get_async(backend, graph->tensors.q[attention], of.q.data(),
                                  sequence.first_token * size * sizeof(float),
                                  size * sizeof(float));
    host_queries_.push_back({.sequence = &sequence, .q = of.q.data()});
    if (attention > 0) FetchHostWeights(*graph, attention - 1, &of);
  }
  ggml_backend_synchronize(backend);
  EBB_RETURN_IF_ERROR(Compute(graph->parts[part].get()));
  if (attention > 0) AddMassOfHost(*graph);
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    host_shares_[i].result.resize(host_attention_->ResultSize());
    host_queries_[i].result = host_shares_[i].result.data();
  }
  host_attention_->Attend(model_.shape.LayerRead(attention), host_queries_);
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    HostShare& of = host_shares_[i];
    if (graph->shape.sequences[of.index].is_eager) {
      // A head without a row there: not every backend's softmax takes infinity.
      for (float& log_sum : std::span(of.result).subspan(size)) {
        log_sum = std::max(log_sum, kNoRows);
      }
    }
    ggml_backend_tensor_set_async(backend, graph->tensors.sequences[of.index].host,
                                  of.result.data(), 0, of.result.size() * sizeof(float));
  }
  return OkStatus();
}

void DeviceStep::FetchHostWeights(const Graph& graph, int attention, HostShare* of) const {
  const ggml_tensor* all = graph.tensors.sequences[of->index].host_weights;
  if (all == nullptr) return;
  ggml_backend_tensor_get_async(device_->backend(), all, of->weights.data(),
                                static_cast<size_t>(attention) * all->nb[1],
                                of->weights.size() * sizeof(float));
}

void DeviceStep::AddMassOfHost(const Graph& graph) {
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    HostShare& of = host_shares_[i];
    if (!graph.shape.sequences[of.index].is_eager) {
      const float* const here = of.result.data() + of.q.size();
      for (size_t head = 0; head < of.weights.size(); ++head) {
        const float all = of.weights[head];
        // Not a number, where the sum is none.
        of.weights[head] = std::isfinite(all) ? std::exp2(here[head] - all) : all;
      }
    }
    host_attention_->AddMass(i, of.weights);
  }
}

Status DeviceStep::ComputeByLayer(const StepWork& work, const StagedSequences& staged,
                                  Graph* graph) {
  MakeParts(graph);
  for (Graph::Lists& lists : graph->lists) {
    if (lists.rows.has_value()) lists.rows->Begin();
  }
  const bool host_attends = HostAttends(work);
  size_t part = 0;
  EBB_RETURN_IF_ERROR(Compute(graph->parts[part++].get()));
  const int num_attentions = model_.shape.NumAttentions();
  int num_layers = 0;  // that were read
  for (int attention = 0; attention < num_attentions; ++attention) {
    const int layer = model_.shape.LayerRead(attention);
    const bool reads_again = layer < num_layers;
    num_layers = std::max(num_layers, layer + 1);
    if (Selects(work)) FetchQueries(work, attention, *graph);
    for (size_t i = 0; i < work.sequences.size(); ++i) {
      staged.StageLayerOf(i, attention, 0);
      const SequenceStep& sequence = work.sequences[i];
      if (sequence.selector != nullptr) {
        SelectRows(sequence, i, staged.of(i), attention, graph);
      }
      SetListOfLayer(sequence, IndexOf(*graph, sequence), layer, reads_again, graph);
    }
    if (host_attends) EBB_RETURN_IF_ERROR(AttendOnHost(work, attention, part++, graph));
    EBB_RETURN_IF_ERROR(Compute(graph->parts[part++].get()));
    staged.ReleaseLayer(attention);
  }
  if (host_attends) {
    for (size_t i = 0; i < host_queries_.size(); ++i) {
      FetchHostWeights(*graph, num_attentions - 1, &host_shares_[i]);
    }
    ggml_backend_synchronize(device_->backend());
    AddMassOfHost(*graph);
  }
  for (Graph::Lists& lists : graph->lists) {
    if (lists.rows.has_value()) lists.rows->End();
  }
  return OkStatus();
}

Status DeviceStep::ComputeStep(const StepWork& work, const StagedSequences& staged,
                               StepCosts* costs) {
  const auto begin = Clock::now();
  // Lists know pages by their addresses.
  if (std::exchange(num_frees_, device_->num_frees()) != device_->num_frees()) ForgetLists();
  if (HasStates()) ReserveStates(work);
  Shape shape = ShapeOf(work);
  UseRankStores(&shape);
  EBB_ASSIGN_OR_RETURN(Graph* const graph, GraphFor(shape));
  SetInputs(work, graph);
  if (HasStates()) EBB_RETURN_IF_ERROR(SetStates(work, graph));
  const auto reads_t1 = [](const SequenceStep& sequence) {
    return sequence.cache->t1_reader().bytes_read() > 0;
  };
  if (Selects(work) || HostAttends(work) || std::ranges::any_of(work.sequences, reads_t1)) {
    EBB_RETURN_IF_ERROR(ComputeByLayer(work, staged, graph));
  } else {
    for (const SequenceStep& sequence : work.sequences) {
      SetLists(sequence, IndexOf(*graph, sequence), graph);
    }
    EBB_RETURN_IF_ERROR(Compute(graph->graph.graph));
  }
  if (graph->graph.logits != nullptr) {
    logits_.resize(static_cast<size_t>(ggml_nelements(graph->graph.logits)));
    ggml_backend_tensor_get_async(device_->backend(), graph->graph.logits, logits_.data(), 0,
                                  logits_.size() * sizeof(float));
  }
  num_read_ = 0;
  FetchSignals(work, *graph);
  if (HasStates()) TakeStates(work, graph);
  // One figure for all: a device tells nothing of its nodes.
  if (costs != nullptr) {
    *costs = {.other_seconds = std::chrono::duration<double>(Clock::now() - begin).count()};
  }
  return OkStatus();
}

// The host's memory, before anything changes. May throw std::bad_alloc.
void DeviceStep::ReserveStates(const StepWork& work) {
  for (const SequenceStep& sequence : work.sequences) sequence.state->Reserve();
  states_.reserve(work.sequences.size());
}

// A sequence's state lies in the host's memory between steps, where it is saved, forked and rolled
// back, and is copied to the device and back in each.
Status DeviceStep::SetStates(const StepWork& work, Graph* graph) {
  auto* const type = ggml_backend_get_default_buffer_type(device_->backend());
  const size_t needed = graph->graph.inputs->StateBufferBytes(
      static_cast<int>(work.sequences.size()), ggml_backend_buft_get_alignment(type));
  if (state_buffer_ == nullptr || ggml_backend_buffer_get_size(state_buffer_.get()) < needed) {
    state_buffer_.reset();
    state_buffer_.reset(ggml_backend_buft_alloc_buffer(type, needed));
    if (state_buffer_ == nullptr) {
      return OutOfMemory(
          fmt::format("device {} has no memory for recurrent states", device_->name()));
    }
  }
  states_.clear();
  for (const SequenceStep& sequence : work.sequences) {
    states_.push_back(sequence.state->BeginStep());
  }
  graph->graph.inputs->SetStates(states_, state_buffer_.get());
  return OkStatus();
}

// REQUIRES: the step was waited for.
void DeviceStep::TakeStates(const StepWork& work, Graph* graph) {
  graph->graph.inputs->TakeStates();
  for (const SequenceStep& sequence : work.sequences) {
    sequence.state->EndStep(sequence.first + sequence.num_tokens());
  }
}

Status DeviceStep::ComputeLogits(std::span<const float> outputs, bool /*one_token_at_a_time*/) {
  logits_.assign(outputs.begin(), outputs.end());
  return OkStatus();
}

std::span<const float> DeviceStep::logits(size_t i) const {
  const auto vocab_size = static_cast<size_t>(model_.hparams.vocab_size);
  return std::span(logits_).subspan(i * vocab_size, vocab_size);
}

}  // namespace ebb
