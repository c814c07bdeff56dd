#include "src/step/device/device_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <list>
#include <utility>

#include "src/base/sanitizers.h"
#include "src/step/device/device_use.h"
#include "src/step/device/ggml_rows.h"
#include "src/step/device/host_attention.h"

namespace ebb {
namespace {

constexpr size_t kTensorsPerNode = 3;  // because views and inputs are tensors too

// Lengths has the lengths of the shortest and of the longest list of rows that the device reads.
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

// kPagesOfList is the multiple to which lists of pages are padded, because a few pages come and go
// between steps and the graph should stay.
constexpr int kPagesOfList = 16;

int RoundUp(size_t number, int step) { return (static_cast<int>(number) + step - 1) / step * step; }

// Returns whether all groups have the same number of rows and no window hides any.
bool AllSeeAlike(const SequenceCache& cache) {
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    if (cache.layout().WindowOf(group) > 0) return false;
    if (cache.positions(group).size() != cache.positions(0).size()) return false;
    if (cache.views().num_full_rows(group) != cache.views().num_full_rows(0)) return false;
  }
  return true;
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

// Fills in the T2 members of `to`. Returns whether all kv heads have the same number of rows in T2.
bool DescribeCompressed(const SequenceCache& cache, int num_layers, BackendSequence* to) {
  const size_t first_rows = cache.views().Compressed(0, 0).size();
  size_t least_rows = first_rows, most_rows = first_rows, most_pages = 0;
  for (int layer = 0; layer < num_layers; ++layer) {
    for (int head = 0; head < cache.layout().NumKvHeads(layer); ++head) {
      const size_t rows = cache.views().Compressed(layer, head).size();
      least_rows = std::min(least_rows, rows);
      most_rows = std::max(most_rows, rows);
      most_pages = std::max(most_pages, cache.views().NumPages(layer, head));
    }
  }
  const size_t column_of_host = to->adds_host && to->is_eager ? 1 : 0;
  to->num_compressed = RoundUp(most_rows + column_of_host, kRowsOfDeviceStep);
  to->num_compressed_pages = RoundUp(most_pages + 1, kPagesOfList);
  to->compressed_groups = cache.layout().num_groups();
  return least_rows == most_rows;
}

void DescribeRanks(const Selector& selector, const SequenceCache& cache, BackendSequence* to) {
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

}  // namespace

bool Selects(const StepWork& work) {
  return std::ranges::any_of(work.sequences,
                             [](const SequenceStep& s) { return s.selector != nullptr; });
}

bool HostAttends(const StepWork& work) {
  return std::ranges::any_of(work.sequences,
                             [](const SequenceStep& s) { return HostAttention::IsFor(*s.cache); });
}

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

size_t DeviceGraph::IndexOf(const SequenceStep& sequence) const {
  return static_cast<size_t>(
      std::ranges::find(shape.sequences, sequence.first_token, &BackendSequence::first_token) -
      shape.sequences.begin());
}

void DeviceGraph::MakeParts() {
  if (!parts.empty()) return;
  int begin = 0;
  for (const int end : tensors.cuts) {
    parts.push_back(PartOf(graph.graph, begin, end));
    begin = end;
  }
  parts.push_back(PartOf(graph.graph, begin, ggml_graph_n_nodes(graph.graph)));
}

DeviceGraphs::DeviceGraphs(const LoadedModel& model, BackendDevice* device,
                           const AttentionShape& shape)
    : model_(model),
      device_(device),
      shape_(shape),
      runs_row_attention_(RunsRowAttention(*device, model)),
      own_nodes_(OwnNodesOf(*device, runs_row_attention_, shape.compressed)),
      graphs_(ggml_backend_get_default_buffer_type(device->backend())),
      rank_stores_([this](const RankStore* store) {
        graphs_.DropIf([&](const DeviceGraph& graph) {
          return std::ranges::any_of(graph.lists, [&](const DeviceGraph::Lists& lists) {
            return lists.ranks.get() == store;
          });
        });
      }) {}

Status DeviceGraphs::CopyWeights() {
  EBB_ASSIGN_OR_RETURN(weights_, DeviceWeights::Create(model_, device_));
  return OkStatus();
}

void DeviceGraphs::Leak() {
  if (weights_ != nullptr) weights_->Leak();
  for (DeviceGraph& graph : graphs_.graphs()) ebb::Leak(&graph.list_buffer);
  rank_stores_.Leak();
  graphs_.buffers().Leak();
}

Status DeviceGraphs::Check(int num_tokens, RowsBelowT0 below) {
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

void DeviceGraphs::ChooseAttention(BackendSequence* sequence) const {
  sequence->by_row_attention = runs_row_attention_ && sequence->num_tokens == 1;
  sequence->is_eager = !sequence->by_row_attention &&
                       (sequence->adds_host || device_->attention() == DeviceAttention::kEager);
}

BackendSequence DeviceGraphs::Describe(const SequenceStep& sequence) const {
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
  // The host's column is the last one. It is counted here if no rows of T2 follow, else with those.
  const size_t column_of_host =
      described.adds_host && described.is_eager && !has_compressed ? 1 : 0;
  described.num_rows =
      RoundUp(std::max<size_t>(lengths.most + column_of_host, 1), kRowsOfDeviceStep);
  described.has_mask = !described.by_row_attention || sequence.selector != nullptr || hides_rows;
  // In a step of several tokens, the rows that a token sees may differ by group even if all groups
  // have the same number of rows.
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
  // Asks the signals for their granularity: in a lossless session these are the draft's, not the
  // cache's.
  const bool of_layers =
      need == MassNeed::kSummed && sequence.signals->granularity() != Granularity::kHead;
  described.mass = need == MassNeed::kPerQueryHead           ? Mass::kPerQueryHead
                   : of_layers && described.by_row_attention ? Mass::kPerLayer
                                                             : Mass::kPerKvHead;
  return described;
}

DeviceGraph::Shape DeviceGraphs::ShapeOf(const StepWork& work) const {
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
  // Attention expects its inputs in the order of the sequences' tokens.
  std::ranges::sort(shape.sequences, {}, &BackendSequence::first_token);
  shape.options = OptionsFor(shape, static_cast<int>(work.tokens.size()),
                             static_cast<int>(work.output_rows.size()));
  // Only graphs of models with recurrent state depend on the number of sequences.
  if (model_.hparams.state_bytes > 0) {
    shape.options.num_sequences = static_cast<int>(work.sequences.size());
  }
  shape.options.hidden_layers = needs.hidden_layers;
  shape.options.keys_before_rope = needs.keys_before_rope;
  shape.options.eviction_logits = needs.eviction_logits;
  return shape;
}

DecoderGraphOptions DeviceGraphs::OptionsFor(const Shape& shape, int num_tokens,
                                             int num_outputs) const {
  return {.num_tokens = num_tokens,
          .num_outputs = num_outputs,
          .takes_embeddings = true,
          .attention_nodes_per_layer =
              BackendAttention::NodesPerLayer(model_, shape.sequences, shape.wanted.num_followers)};
}

void DeviceGraphs::UseRankStores(Shape* shape) {
  rank_stores_.BeginStep();
  for (BackendSequence& sequence : shape->sequences) {
    if (sequence.ranks.num_pages == 0) continue;
    if (rank_stores_.Use(device_->backend(), sequence.rank_selector, sequence.ranks,
                         model_.shape.NumStreams(), model_.hparams.head_dim) != nullptr) {
      continue;
    }
    sequence.ranks = {};
    sequence.rank_selector = 0;
    sequence.rank_scale = 0;
  }
}

Status DeviceGraphs::MakeLists(DeviceGraph* graph) const {
  const size_t num_sequences = graph->shape.sequences.size();
  graph->list_context.reset(ggml_init({.mem_size = (5 * num_sequences + 2) * ggml_tensor_overhead(),
                                       .mem_buffer = nullptr,
                                       .no_alloc = true}));
  if (graph->list_context == nullptr) return OutOfMemory("no memory for lists of rows");
  const int64_t heads = model_.shape.NumStreams();
  graph->tensors.sequences.resize(num_sequences);
  for (size_t i = 0; i < num_sequences; ++i) {
    const BackendSequence& sequence = graph->shape.sequences[i];
    const bool by_pages = sequence.num_pages > 0;
    BackendTensors::OfSequence& tensors = graph->tensors.sequences[i];
    tensors.lists = ggml_new_tensor_1d(graph->list_context.get(), GGML_TYPE_I32,
                                       heads * (by_pages ? sequence.num_pages : sequence.num_rows));
    DeviceGraph::Lists& lists = graph->lists.emplace_back();
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

Result<DeviceGraph*> DeviceGraphs::Build(const Shape& shape, ggml_tensor* rows) {
  graphs_.MakeRoom(kKeptDeviceGraphs, [](const DeviceGraph&) { return true; });
  std::list<DeviceGraph> made(1);
  DeviceGraph& graph = made.front();
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
  // Makes output tensors that keep their memory during the whole step. They come first, side by
  // side, so that they leave no holes between the tensors of layers.
  const auto kept = [&](ggml_type type, int64_t columns, int64_t rows) {
    ggml_tensor* tensor = ggml_new_tensor_2d(context, type, columns, rows);
    ggml_set_input(tensor);
    ggml_set_output(tensor);
    return tensor;
  };
  const int64_t heads = model_.shape.NumStreams();
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
      tensors.host =
          kept(GGML_TYPE_F32, static_cast<int64_t>(HostAttention::ResultSize(shape_)), 1);
    }
    if (sequence.mass == BackendSequence::Mass::kNone) continue;
    const int num_layers = model_.hparams.num_layers;
    tensors.mass = kept(GGML_TYPE_F32, sequence.NumKeys(),
                        graph.attention->FirstMassArray(sequence.mass, num_layers));
    if (sequence.adds_host) {
      // Rounds up the size of a layer's part, so that each layer begins at an alignment from which
      // every backend can copy.
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

Status DeviceGraphs::CheckSupported(const DeviceGraph& graph) const {
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

Result<DeviceGraph*> DeviceGraphs::For(const StepWork& work) {
  // Lists identify pages by address, and a freed address may have been used again.
  if (std::exchange(num_frees_, device_->num_frees()) != device_->num_frees()) ForgetLists();
  Shape shape = ShapeOf(work);
  UseRankStores(&shape);
  // Kept graphs contain addresses in the old buffer of rows.
  if (std::exchange(rows_generation_, device_->generation()) != device_->generation()) {
    graphs_.DropIf([](const DeviceGraph&) { return true; });
  }
  DeviceGraph* graph = graphs_.Find(shape);
  if (graph == nullptr) {
    assert(device_->rows() != nullptr);
    EBB_ASSIGN_OR_RETURN(graph, Build(shape, device_->rows()));
  }
  if (graphs_.Hold(*graph)) return graph;
  return OutOfMemory(fmt::format("device {} has no memory for a step of {} tokens", device_->name(),
                                 shape.options.num_tokens));
}

void DeviceGraphs::Forget() {
  ForgetLists();
  rank_stores_.ForgetVectors();
}

void DeviceGraphs::ForgetLists() {
  for (DeviceGraph& graph : graphs_.graphs()) {
    for (DeviceGraph::Lists& lists : graph.lists) {
      if (lists.rows.has_value()) lists.rows->Forget();
      if (lists.pages.has_value()) lists.pages->Forget();
      if (lists.compressed.has_value()) lists.compressed->Forget();
    }
  }
}

}  // namespace ebb
