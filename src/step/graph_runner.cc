#include <algorithm>
#include <cassert>
#include <cstring>
#include <list>
#include <numeric>
#include <set>
#include <string>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"
#include "hwy/aligned_allocator.h"
#include "src/base/ggml_deleter.h"
#include "src/model/loaded_model.h"
#include "src/step/attention_nodes.h"
#include "src/step/device/backend_step.h"
#include "src/step/graph_contexts.h"
#include "src/step/graph_costs.h"
#include "src/step/graph_runner.h"
#include "src/step/rotation/key_rotation.h"
#include "src/step/staged_sequences.h"

namespace ebb {
namespace {

// Graphs kept at once, of about 1 MB each. Of steps of one sequence: a generation's, and a
// verifying step's or those that read a prompt; building one costs little beside a step of several
// tokens. Of steps of several sequences: for batches whose size changes with every step.
constexpr size_t kMaxGraphsOfOne = 2;
constexpr size_t kMaxGraphsOfSeveral = 16;

// How long threads look for the next graph before they sleep, in ggml's measure: 0.2 ms, a few
// where ggml is not patched. What lies between two steps is mostly shorter; every longer look takes
// the cores from whatever else is to run.
constexpr uint32_t kPoll = 1;

// For the tensors of a graph; null when there is no memory.
std::unique_ptr<ggml_context, GgmlDeleter> MakeGraphContext(size_t max_nodes) {
  // Twice the nodes: views and inputs are tensors too.
  return std::unique_ptr<ggml_context, GgmlDeleter>(
      ggml_init({.mem_size = 2 * max_nodes * ggml_tensor_overhead() +
                             ggml_graph_overhead_custom(max_nodes, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
}

struct GraphShape {
  DecoderGraphOptions options;
  AttentionPath path;
  bool is_of_several = false;  // sequences

  [[nodiscard]] bool operator==(const GraphShape&) const = default;
};

struct StepGraph {
  GraphShape shape;
  std::unique_ptr<AttentionOp> op;
  std::unique_ptr<ggml_context, GgmlDeleter> ctx;
  DecoderGraph graph;
};

struct DeferredLogits {
  bool one_token_at_a_time = false;
  std::unique_ptr<ggml_context, GgmlDeleter> ctx;
  LogitsGraph graph;
};

double WaitSeconds(const StepWork& work) {
  double seconds = 0;
  for (const SequenceStep& sequence : work.sequences) {
    seconds += sequence.cache->t1_reader().wait_seconds();
  }
  return seconds;
}

// A graph for so many tokens takes fewer too: batches of similar sizes share one. One more token of
// nine costs less than building a graph.
int SizeOfGraph(size_t num_tokens) {
  const int num = static_cast<int>(num_tokens);
  int step = 1;
  while (num > 8 * step && step < 32) step *= 2;
  return (num + step - 1) / step * step;
}

// Whether all sequences have as many tokens, in their order.
bool IsUniform(const StepWork& work) {
  const int num_tokens = work.sequences.front().num_tokens();
  for (size_t i = 0; i < work.sequences.size(); ++i) {
    const SequenceStep& sequence = work.sequences[i];
    if (sequence.num_tokens() != num_tokens ||
        sequence.first_token != static_cast<int>(i) * num_tokens) {
      return false;
    }
  }
  return true;
}

// The part of a step that takes the tokens of some of its sequences.
StepWork PartOf(const StepWork& work, std::span<const size_t> sequences) {
  StepWork part;
  part.deferred_logits = work.deferred_logits;
  part.one_token_at_a_time = work.one_token_at_a_time;
  for (const size_t index : sequences) {
    SequenceStep sequence = work.sequences[index];
    const int first = sequence.first_token, end = first + sequence.num_tokens();
    sequence.first_token = static_cast<int>(part.tokens.size());
    for (int token = first; token < end; ++token) {
      if (std::ranges::binary_search(work.output_rows, token)) {
        part.output_rows.push_back(static_cast<int32_t>(part.tokens.size()));
      }
      part.tokens.push_back(work.tokens[token]);
      part.rope_positions.push_back(work.rope_positions[token]);
    }
    if (!sequence.in_tiles) part.num_fold_tokens += sequence.num_tokens();
    part.sequences.push_back(sequence);
  }
  return part;
}

// has_state: of the model, whose graphs are built for exact numbers of sequences and tokens: a
// token that fills up the graph's would need a state.
GraphShape ShapeOf(const StepWork& work, bool has_state) {
  GraphShape shape = {.path = AttentionPath::Of(work), .is_of_several = work.sequences.size() > 1};
  SignalNeeds needs;
  for (const SequenceStep& sequence : work.sequences) {
    sequence.ForEachSignals(
        [&](const SignalBuffers* signals) { needs = Union(needs, signals->needs()); });
  }
  const auto size = [&](size_t num) {
    return shape.is_of_several && !has_state ? SizeOfGraph(num) : static_cast<int>(num);
  };
  const int num_tokens = size(work.tokens.size());
  // If there are as many outputs as tokens, they are those of all tokens, in their order.
  const bool all = work.output_rows.size() == work.tokens.size();
  const int num_outputs =
      all ? num_tokens : std::min(size(work.output_rows.size()), num_tokens - 1);
  shape.options = {.num_tokens = num_tokens,
                   .num_sequences = has_state ? static_cast<int>(work.sequences.size()) : 1,
                   .num_outputs = num_outputs,
                   .hidden_layers = needs.hidden_layers,
                   .keys_before_rope = needs.keys_before_rope,
                   .eviction_logits = needs.eviction_logits,
                   .logits = !work.deferred_logits,
                   .one_token_at_a_time = work.one_token_at_a_time && work.tokens.size() > 1};
  return shape;
}

// Reserves a quarter more: each step adds a row.
template <typename T>
void ReserveMore(std::vector<T>* vector, size_t num) {
  if (vector->capacity() < num) vector->reserve(num + num / 4);
}

}  // namespace

struct GraphRunner::Impl {
  Impl(const LoadedModel& model_in, const AttentionKernel& kernel, const AttentionShape& shape,
       Device* device_in, int threads_in)
      : model(model_in),
        kv_head_counts(model_in.hparams.kv_heads.begin(), model_in.hparams.kv_heads.end()),
        has_windows(model_in.shape.SmallestWindow() > 0),
        threads(threads_in),
        device(device_in),
        scratch(kernel, shape) {}

  const LoadedModel& model;
  const std::set<int> kv_head_counts;  // that layers have
  const bool has_windows;
  const int threads;
  Device* const device;
  std::unique_ptr<ggml_threadpool, GgmlDeleter> threadpool;
  std::unique_ptr<ggml_backend, GgmlDeleter> backend;
  AttentionScratch scratch;
  std::unique_ptr<BackendStep> on_device;  // null: the processor computes steps
  std::list<StepGraph> graphs;             // most recently used first
  int64_t num_graphs_built = 0;
  DeferredLogits later;
  hwy::AlignedFreeUniquePtr<std::byte[]> state_batch;  // states of several sequences, side by side
  size_t state_batch_bytes = 0;
  std::vector<std::byte*> states;        // of the sequences of a step
  std::vector<StagedStep> staged_steps;  // of the same
  std::vector<float> logits_of_parts;    // of a step that took several graphs; empty: of one
  const ggml_tensor* logits = nullptr;   // those computed last
  // All graphs share these: as large as the largest needs, so that none touches new memory. Memory
  // for a prompt goes back to the system after it.
  std::unique_ptr<ggml_gallocr, GgmlDeleter> buffers;
  int tokens_in_buffers = 0;                // of the largest step that they were made for
  const ggml_cgraph* in_buffers = nullptr;  // whose tensors lie there
  // A graph of one node, which lends the threads of ggml to other work.
  std::unique_ptr<ggml_context, GgmlDeleter> team_ctx;
  ggml_cgraph* team_graph = nullptr;
  const std::function<void(int, int)>* team_work = nullptr;  // while it runs

  Status BuildTeam();
  void RunOnThreads(const std::function<void(int, int)>& work);
  static void TeamNode(ggml_tensor* node, int part, int num_parts, void* impl);

  Result<StepGraph*> GraphFor(const GraphShape& shape);
  void DropGraph(bool is_of_several);
  Status Build(const GraphShape& shape);
  Status BuildDeferredLogits(size_t num_tokens, bool one_token_at_a_time);
  Status MakeBuffers();
  Status PutIntoBuffers(const GraphContexts& contexts, ggml_cgraph* graph, int num_tokens);
  void Reserve(const StepWork& work, const AttentionPath& path);
  void ReserveFolds(const StepWork& work, int num_folds);
  void ReserveSelection(const StepWork& work);
  ggml_status Compute(const StepWork& work, ggml_cgraph* graph, StepCosts* costs);
  void ReserveStates(const StepWork& work);
  // Gives the graph the states of the sequences. REQUIRES: ReserveStates() made room.
  void SetStates(const StepWork& work, StepGraph* graph);
  // Copies the hidden states of a sequence's tokens.
  static void CopyHidden(const SequenceStep& sequence, const StepGraph& graph,
                         SignalBuffers* signals);
  void CopyEvictionLogits(const SequenceStep& sequence, const StepGraph& graph,
                          SignalBuffers* signals) const;
};

GraphRunner::GraphRunner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphRunner::~GraphRunner() = default;

Result<std::unique_ptr<GraphRunner>> GraphRunner::Create(const Model& model,
                                                         const AttentionKernel& kernel,
                                                         RowType kv_type,
                                                         const CompressedFormat& compressed,
                                                         const DeviceUse& device, int threads) {
  const LoadedModel& loaded = model.loaded();
  const AttentionShape shape = {.num_q_heads = loaded.hparams.num_q_heads,
                                .num_kv_heads = loaded.shape.num_kv_heads,
                                .scale = loaded.hparams.attention_scale,
                                .soft_cap = loaded.hparams.attention_soft_cap,
                                .format = PageFormat::Of(loaded.shape, kv_type),
                                .compressed = compressed};
  EBB_RETURN_IF_ERROR(CheckAttentionShape(shape));
  auto impl = std::make_unique<Impl>(loaded, kernel, shape, device.device(), threads);
  impl->backend.reset(ggml_backend_cpu_init());
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = kPoll;
  impl->threadpool.reset(ggml_threadpool_new(&params));
  if (impl->backend == nullptr || impl->threadpool == nullptr) {
    return OutOfMemory("ggml could not start " + std::to_string(threads) + " threads");
  }
  ggml_backend_cpu_set_n_threads(impl->backend.get(), threads);
  ggml_backend_cpu_set_threadpool(impl->backend.get(), impl->threadpool.get());
  EBB_RETURN_IF_ERROR(impl->MakeBuffers());
  EBB_RETURN_IF_ERROR(impl->BuildTeam());
  if (device.device()->IsClosed()) {
    const HostAttention::OnThreads on_threads = [team = impl.get()](const auto& work) {
      team->RunOnThreads(work);
    };
    auto host_attention = std::make_unique<HostAttention>(kernel, shape, threads, on_threads);
    EBB_ASSIGN_OR_RETURN(
        impl->on_device,
        BackendStep::Create(loaded, device, shape, std::move(host_attention), on_threads));
  }
  return std::unique_ptr<GraphRunner>(new GraphRunner(std::move(impl)));
}

void GraphRunner::Impl::TeamNode(ggml_tensor*, int part, int num_parts, void* impl) {
  (*static_cast<Impl*>(impl)->team_work)(part, num_parts);
}

Status GraphRunner::Impl::BuildTeam() {
  constexpr size_t kNodes = 8;
  team_ctx.reset(ggml_init({.mem_size = kNodes * ggml_tensor_overhead() +
                                        ggml_graph_overhead_custom(kNodes, false) + 4096,
                            .mem_buffer = nullptr,
                            .no_alloc = false}));
  if (team_ctx == nullptr) return OutOfMemory("no memory for a graph");
  ggml_tensor* node = ggml_custom_4d(team_ctx.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
                                     TeamNode, GGML_N_TASKS_MAX, this);
  team_graph = ggml_new_graph_custom(team_ctx.get(), kNodes, false);
  ggml_build_forward_expand(team_graph, node);
  return OkStatus();
}

void GraphRunner::Impl::RunOnThreads(const std::function<void(int, int)>& work) {
  if (threads == 1) return work(0, 1);
  assert(team_work == nullptr && "the team is at work");
  team_work = &work;
  ggml_backend_graph_compute(backend.get(), team_graph);
  team_work = nullptr;
}

void GraphRunner::RunOnThreads(const std::function<void(int, int)>& work) {
  impl_->RunOnThreads(work);
}

int GraphRunner::threads() const { return impl_->threads; }
bool GraphRunner::ReadsT2TokenByToken() const {
  return impl_->on_device != nullptr && !impl_->on_device->HoldsT2();
}
int64_t GraphRunner::num_graphs_built() const {
  return impl_->on_device == nullptr ? impl_->num_graphs_built
                                     : impl_->on_device->num_graphs_built();
}

Result<StepGraph*> GraphRunner::Impl::GraphFor(const GraphShape& shape) {
  const auto found = std::find_if(graphs.begin(), graphs.end(),
                                  [&](const StepGraph& graph) { return graph.shape == shape; });
  if (found != graphs.end()) {
    graphs.splice(graphs.begin(), graphs, found);
  } else {
    EBB_RETURN_IF_ERROR(Build(shape));
  }
  StepGraph* graph = &graphs.front();
  EBB_RETURN_IF_ERROR(PutIntoBuffers({graph->ctx.get(), graph->graph.other_context},
                                     graph->graph.graph, graph->shape.options.num_tokens));
  return graph;
}

Status GraphRunner::Impl::MakeBuffers() {
  std::unique_ptr<ggml_gallocr, GgmlDeleter> empty(
      ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
  if (empty == nullptr) return OutOfMemory("no memory for compute buffers");
  buffers = std::move(empty);
  tokens_in_buffers = 0;
  return OkStatus();
}

// Plans each time: ggml would take another graph's plan where the sizes allow it.
Status GraphRunner::Impl::PutIntoBuffers(const GraphContexts& contexts, ggml_cgraph* graph,
                                         int num_tokens) {
  if (in_buffers == graph) return OkStatus();
  in_buffers = nullptr;
  if (tokens_in_buffers > kTokensInKeptBuffers && num_tokens <= kTokensInKeptBuffers) {
    EBB_RETURN_IF_ERROR(MakeBuffers());
  }
  tokens_in_buffers = std::max(tokens_in_buffers, num_tokens);
  TakeFromBuffers(contexts);
  if (!ggml_gallocr_reserve(buffers.get(), graph) ||
      !ggml_gallocr_alloc_graph(buffers.get(), graph)) {
    return OutOfMemory("no memory for the compute buffers of a step of " +
                       std::to_string(num_tokens) + " tokens");
  }
  in_buffers = graph;
  return OkStatus();
}

// The one of its kind that was not used for longest makes room.
void GraphRunner::Impl::DropGraph(bool is_of_several) {
  const size_t most = is_of_several ? kMaxGraphsOfSeveral : kMaxGraphsOfOne;
  const auto is_alike = [&](const StepGraph& graph) {
    return graph.shape.is_of_several == is_of_several;
  };
  if (static_cast<size_t>(std::ranges::count_if(graphs, is_alike)) < most) return;
  const auto last = std::find_if(graphs.rbegin(), graphs.rend(), is_alike);
  if (in_buffers == last->graph.graph) in_buffers = nullptr;
  graphs.erase(std::prev(last.base()));
}

Status GraphRunner::Impl::Build(const GraphShape& shape) {
  DropGraph(shape.is_of_several);
  StepGraph graph;
  graph.shape = shape;
  graph.op = std::make_unique<AttentionOp>(&scratch, shape.path);
  graph.ctx = MakeGraphContext(DecoderGraphMaxNodes(model));
  if (graph.ctx == nullptr) return OutOfMemory("no memory for a graph");
  EBB_ASSIGN_OR_RETURN(graph.graph,
                       BuildDecoderGraph(model, graph.ctx.get(), shape.options, *graph.op));
  graphs.push_front(std::move(graph));
  ++num_graphs_built;
  return OkStatus();
}

void GraphRunner::Impl::Reserve(const StepWork& work, const AttentionPath& path) {
  size_t tile = 0;
  for (const SequenceStep& sequence : work.sequences) {
    if (!sequence.in_tiles) continue;
    if (tile == scratch.tiles.size()) scratch.tiles.emplace_back(scratch.kernel, scratch.shape);
    scratch.tiles[tile].rows.resize(scratch.shape.num_kv_heads);
    if (sequence.cache->views().HasCompressedRows()) {
      scratch.tiles[tile].merged.Reserve(*sequence.cache, model.shape, scratch.shape.format);
    }
    for (const int heads : kv_head_counts) {
      scratch.tiles[tile].attention.Reserve(heads, sequence.num_tokens(),
                                            sequence.cache->tables().max_rows(), threads);
    }
    ++tile;
  }
  // Prompts of a batch end in turns: memory of those that have ended goes back.
  for (; tile < scratch.tiles.size(); ++tile) scratch.tiles[tile].merged.Release();
  if (path.num_folds > 0) ReserveFolds(work, path.num_folds);
  if (path.selects) ReserveSelection(work);
}

void GraphRunner::Impl::ReserveFolds(const StepWork& work, int num_folds) {
  const size_t heads = scratch.shape.num_kv_heads;
  size_t max_rows = 0;
  for (const SequenceStep& sequence : work.sequences) {
    if (!sequence.in_tiles) max_rows = std::max(max_rows, sequence.cache->tables().max_rows());
  }
  const int fold_tokens = (work.num_fold_tokens + num_folds - 1) / num_folds;
  while (static_cast<int>(scratch.folds.size()) < std::max(num_folds, 2)) {
    scratch.folds.emplace_back(scratch.kernel, scratch.shape, scratch.states);
  }
  if (has_windows && scratch.numbers.size() < max_rows) {
    scratch.numbers.resize(max_rows + max_rows / 4);
    std::iota(scratch.numbers.begin(), scratch.numbers.end(), 0);
  }
  for (AttentionScratch::FoldScratch& fold : scratch.folds) {
    fold.rows.resize(std::max(fold.rows.size(), fold_tokens * heads));
    if (has_windows) fold.full_indices.resize(fold.rows.size());
    if (scratch.shape.compressed.head_dim > 0) {
      fold.compressed.resize(fold.rows.size());
      fold.full_indices.resize(fold.rows.size());
      fold.compressed_indices.resize(fold.rows.size());
    }
    fold.queries.reserve(fold_tokens);
    fold.attention.Reserve(fold_tokens, max_rows, threads);
  }
}

// Rows are selected inside the graph, where nothing may fail.
void GraphRunner::Impl::ReserveSelection(const StepWork& work) {
  const size_t heads = scratch.shape.num_kv_heads;
  const size_t views = work.num_fold_tokens * heads;
  scratch.selected.resize(std::max(scratch.selected.size(), views));
  scratch.selected_spans.resize(std::max(scratch.selected_spans.size(), views));
  for (const SequenceStep& sequence : work.sequences) {
    if (sequence.selector == nullptr) continue;
    for (size_t i = 0; i < sequence.num_tokens() * heads; ++i) {
      AttentionScratch::Selected& selected = scratch.selected[sequence.first_token * heads + i];
      const size_t max_rows = sequence.cache->tables().max_rows();
      ReserveMore(&selected.ranges, (max_rows + 1) / 2);
      ReserveMore(&selected.foreseen, (max_rows + 1) / 2);
      ReserveMore(&selected.chunks, max_rows / kChunkRows + 1);
      if (sequence.signals->wants_mass()) ReserveMore(&selected.rows, max_rows);
      selected.parts_ranked = 0;
    }
  }
}

void GraphRunner::Impl::CopyHidden(const SequenceStep& sequence, const StepGraph& graph,
                                   SignalBuffers* signals) {
  const std::vector<int>& layers = graph.shape.options.hidden_layers;
  const std::vector<int>& wanted = signals->needs().hidden_layers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto at = std::find(layers.begin(), layers.end(), wanted[i]) - layers.begin();
    const ggml_tensor* hidden = graph.graph.hidden[at];
    std::memcpy(signals->Hidden(i),
                static_cast<const char*>(hidden->data) + sequence.first_token * hidden->nb[1],
                sequence.num_tokens() * hidden->nb[1]);
  }
}

void GraphRunner::Impl::CopyEvictionLogits(const SequenceStep& sequence, const StepGraph& graph,
                                           SignalBuffers* signals) const {
  if (!signals->needs().eviction_logits) return;
  const Hyperparameters& h = model.hparams;
  for (int layer = 0; layer < h.num_layers; ++layer) {
    const auto* channels = static_cast<const float*>(graph.graph.eviction_channels[layer]->data) +
                           size_t(sequence.first_token) * h.kv_heads[layer];
    const std::span<float> logits = signals->EvictionLogits(layer);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = h.eviction_scale * channels[i] - h.eviction_offset;
    }
  }
}

ggml_status GraphRunner::Impl::Compute(const StepWork& work, ggml_cgraph* graph, StepCosts* costs) {
  if (costs == nullptr) return ggml_backend_graph_compute(backend.get(), graph);
  GraphCosts measured(graph);
  const double waited = WaitSeconds(work);
  ggml_backend_cpu_set_abort_callback(backend.get(), GraphCosts::NodeDone, &measured);
  measured.Begin();
  const ggml_status status = ggml_backend_graph_compute(backend.get(), graph);
  *costs = measured.End(WaitSeconds(work) - waited);
  ggml_backend_cpu_set_abort_callback(backend.get(), nullptr, nullptr);
  return status;
}

Status GraphRunner::Run(const StepWork& work, StepCosts* costs) {
  EBB_RETURN_IF_ERROR(RunParts(work, costs));
  // Afterwards, so that no result of weights that changed during the step is believed.
  return impl_->model.CheckFilesUnchanged();
}

// Layers with recurrent state take as many tokens of each sequence. A step of others becomes
// several: one of all sequences with a single token, and one for each other sequence.
Status GraphRunner::RunParts(const StepWork& work, StepCosts* costs) {
  impl_->logits_of_parts.clear();
  if (impl_->model.hparams.state_bytes == 0 || IsUniform(work)) return RunPart(work, costs);
  std::vector<std::vector<size_t>> parts(1);
  for (size_t i = 0; i < work.sequences.size(); ++i) {
    if (work.sequences[i].num_tokens() == 1) {
      parts.front().push_back(i);
    } else {
      parts.push_back({i});
    }
  }
  const size_t vocab_size = impl_->model.hparams.vocab_size;
  std::vector<float> all(work.output_rows.size() * vocab_size);
  for (const std::vector<size_t>& sequences : parts) {
    if (sequences.empty()) continue;
    EBB_RETURN_IF_ERROR(RunPart(PartOf(work, sequences), costs));
    size_t output = 0;
    for (const size_t index : sequences) {
      const SequenceStep& sequence = work.sequences[index];
      const auto begin = std::ranges::lower_bound(work.output_rows, sequence.first_token);
      const auto end =
          std::ranges::lower_bound(work.output_rows, sequence.first_token + sequence.num_tokens());
      for (auto row = begin; row != end; ++row) {
        const std::span<const float> from = logits(output++);
        std::ranges::copy(from, all.begin() + (row - work.output_rows.begin()) * vocab_size);
      }
    }
  }
  impl_->logits_of_parts = std::move(all);
  return OkStatus();
}

void GraphRunner::Impl::ReserveStates(const StepWork& work) {
  const size_t num_sequences = work.sequences.size();
  const size_t needed = StateBatchBytes(model.hparams.state_bytes, num_sequences);
  if (state_batch_bytes < needed) {
    auto larger = hwy::AllocateAligned<std::byte>(needed);
    if (larger == nullptr) throw std::bad_alloc();
    state_batch = std::move(larger);
    state_batch_bytes = needed;
  }
  for (const SequenceStep& sequence : work.sequences) sequence.state->Reserve();
  states.reserve(num_sequences);
}

void GraphRunner::Impl::SetStates(const StepWork& work, StepGraph* graph) {
  states.clear();
  for (const SequenceStep& sequence : work.sequences) states.push_back(sequence.state->BeginStep());
  graph->graph.inputs->SetStates(states, {state_batch.get(), state_batch_bytes});
}

Status GraphRunner::RunPart(const StepWork& work, StepCosts* costs) {
  return impl_->on_device != nullptr ? impl_->on_device->Run(work, costs) : RunOnHost(work, costs);
}

Status GraphRunner::RunOnHost(const StepWork& work, StepCosts* costs) {
  const bool has_state = impl_->model.hparams.state_bytes > 0;
  const GraphShape shape = ShapeOf(work, has_state);
  impl_->Reserve(work, shape.path);
  if (has_state) impl_->ReserveStates(work);
  EBB_ASSIGN_OR_RETURN(StepGraph * graph, impl_->GraphFor(shape));
  graph->graph.inputs->Set(work.tokens, work.rope_positions, work.output_rows);
  StagedSequences staged(&impl_->staged_steps);
  for (const SequenceStep& sequence : work.sequences) {
    const T1Reading all =
        sequence.keeps_cached_t1 ? T1Reading::kStagedAndCached : T1Reading::kStaged;
    EBB_RETURN_IF_ERROR(
        staged.Add(sequence, sequence.selector != nullptr ? T1Reading::kSelected : all));
    for (const Follower& follower : sequence.followers) follower.cache->FindAddresses();
  }
  impl_->scratch.select_seconds = 0;
  graph->op->SetWork(&work, &staged);
  if (has_state) impl_->SetStates(work, graph);
  const ggml_status status = impl_->Compute(work, graph->graph.graph, costs);
  EBB_RETURN_IF_ERROR(staged.End());
  if (status != GGML_STATUS_SUCCESS) {
    return Internal(std::string("ggml failed a step: ") + ggml_status_to_string(status));
  }
  impl_->logits = graph->graph.logits;
  if (has_state) graph->graph.inputs->TakeStates();
  for (const SequenceStep& sequence : work.sequences) {
    if (has_state) sequence.state->EndStep(sequence.first + sequence.num_tokens());
    sequence.ForEachSignals([&](SignalBuffers* signals) {
      Impl::CopyHidden(sequence, *graph, signals);
      impl_->CopyEvictionLogits(sequence, *graph, signals);
    });
  }
  return OkStatus();
}

Status GraphRunner::RotateKeys(SequenceCache* cache, int group, const RopePositions& rope,
                               Position end, Position next, UnrotatedKeyCache* unrotated_keys) {
  std::vector<Position> turns;
  rope.Turns(*cache, group, end, &turns);
  TurningKeys keys(cache, impl_->device, group, turns);
  EBB_RETURN_IF_ERROR(keys.Read());
  unrotated_keys->PutBack(*cache, group, rope, next, keys, turns);
  const KeyRotator by = {.model = impl_->model,
                         .kernel = impl_->scratch.kernel,
                         .type = impl_->scratch.shape.format.type,
                         .backend = impl_->backend.get()};
  const auto streams = cache->layout().StreamsOf(group);
  for (size_t i = 0; i < streams.size(); ++i) {
    EBB_RETURN_IF_ERROR(RotateKeysOfStream(by, streams[i].layer, keys.OfStream(i), turns));
  }
  return keys.Write();
}

size_t GraphRunner::weight_bytes_on_device() const {
  return impl_->on_device == nullptr ? 0 : impl_->on_device->weight_bytes();
}
T1Mode GraphRunner::t1_mode() const {
  return impl_->on_device == nullptr ? T1Mode::kStream : impl_->on_device->t1_mode();
}
double GraphRunner::select_seconds() const {
  return impl_->on_device == nullptr ? impl_->scratch.select_seconds
                                     : impl_->on_device->select_seconds();
}

std::span<const float> GraphRunner::logits(size_t i) const {
  if (!impl_->logits_of_parts.empty()) {
    const size_t size = impl_->model.hparams.vocab_size;
    return std::span(impl_->logits_of_parts).subspan(i * size, size);
  }
  if (impl_->on_device != nullptr) return impl_->on_device->logits(i);
  const size_t vocab_size = impl_->logits->ne[0];
  return {static_cast<const float*>(impl_->logits->data) + i * vocab_size, vocab_size};
}

std::span<const float> GraphRunner::outputs() const {
  if (impl_->on_device != nullptr) return impl_->on_device->all_logits();
  const ggml_tensor* outputs = impl_->graphs.front().graph.outputs;
  return {static_cast<const float*>(outputs->data), static_cast<size_t>(ggml_nelements(outputs))};
}
size_t GraphRunner::OutputFloats() const {
  if (impl_->on_device != nullptr) return impl_->model.hparams.vocab_size;
  return ebb::OutputFloats(impl_->model);
}

Status GraphRunner::Impl::BuildDeferredLogits(size_t num_tokens, bool one_token_at_a_time) {
  const ggml_tensor* had = later.graph.logits;
  if (had != nullptr && later.one_token_at_a_time == one_token_at_a_time &&
      size_t(had->ne[1]) == num_tokens) {
    return OkStatus();
  }
  if (in_buffers == later.graph.graph) in_buffers = nullptr;
  later = {.one_token_at_a_time = one_token_at_a_time, .ctx = nullptr, .graph = {}};
  later.ctx = MakeGraphContext(kLogitsGraphMaxNodes);
  if (later.ctx == nullptr) return OutOfMemory("no memory for a graph");
  EBB_ASSIGN_OR_RETURN(
      later.graph,
      BuildLogitsGraph(model, later.ctx.get(), static_cast<int>(num_tokens), one_token_at_a_time));
  return OkStatus();
}

Status GraphRunner::ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) try {
  if (impl_->on_device != nullptr) {
    impl_->on_device->ShowLogits(outputs);
    return OkStatus();
  }
  const size_t num_tokens = outputs.size() / OutputFloats();
  EBB_RETURN_IF_ERROR(impl_->BuildDeferredLogits(num_tokens, one_token_at_a_time));
  const LogitsGraph& graph = impl_->later.graph;
  EBB_RETURN_IF_ERROR(impl_->PutIntoBuffers({impl_->later.ctx.get(), graph.other_context},
                                            graph.graph, static_cast<int>(num_tokens)));
  std::memcpy(graph.outputs->data, outputs.data(), outputs.size_bytes());
  const ggml_status status = ggml_backend_graph_compute(impl_->backend.get(), graph.graph);
  if (status != GGML_STATUS_SUCCESS) {
    return Internal(std::string("ggml failed logits: ") + ggml_status_to_string(status));
  }
  impl_->logits = graph.logits;
  return impl_->model.CheckFilesUnchanged();
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for logits");
}

}  // namespace ebb
