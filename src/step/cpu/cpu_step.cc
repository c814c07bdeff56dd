#include "src/step/cpu/cpu_step.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <new>
#include <numeric>
#include <string>

#include "src/step/cpu/graph_costs.h"

namespace ebb {
namespace {

// kMaxGraphsOfOne bounds the kept graphs of steps of one sequence, about 1 MB each: one to decode,
// and others to verify guesses or to read a prompt.
constexpr size_t kMaxGraphsOfOne = 9;
// kMaxGraphsOfSeveral bounds the kept graphs of steps of several sequences. There are more of them,
// because batches change their size with every step.
constexpr size_t kMaxGraphsOfSeveral = 16;

constexpr size_t kTensorsPerNode = 2;

double WaitSeconds(const StepWork& work) {
  double seconds = 0;
  for (const SequenceStep& sequence : work.sequences) {
    seconds += sequence.cache->t1_reader().wait_seconds();
  }
  return seconds;
}

// Rounds up the number of tokens of a batch's graph, so that batches of similar sizes share a
// graph. Up to a ninth of the tokens are padding then, which costs less than building a graph.
int SizeOfGraph(size_t num_tokens) {
  const int num = static_cast<int>(num_tokens);
  int step = 1;
  while (num > 8 * step && step < 32) step *= 2;
  return (num + step - 1) / step * step;
}

// Reserves a quarter more than `num` elements, because the number grows with each step's rows.
template <typename T>
void ReserveMore(std::vector<T>* vector, size_t num) {
  if (vector->capacity() < num) vector->reserve(num + num / 4);
}

Status NoBuffers(int num_tokens) {
  return OutOfMemory("no memory for the compute buffers of a step of " +
                     std::to_string(num_tokens) + " tokens");
}

}  // namespace

CpuStep::CpuStep(const LoadedModel& model, const AttentionKernel& kernel,
                 const AttentionShape& shape, ggml_backend* backend, int threads)
    : model_(model),
      kv_head_counts_(model.hparams.kv_heads.begin(), model.hparams.kv_heads.end()),
      has_windows_(model.shape.SmallestWindow() > 0),
      threads_(threads),
      backend_(backend),
      scratch_(kernel, shape),
      graphs_(ggml_backend_cpu_buffer_type()) {}

// Returns the shape of the graph that a step needs. If the model has recurrent state, the shape has
// the exact numbers of sequences and tokens, because a padding token would need a state.
CpuStep::GraphShape CpuStep::ShapeOf(const StepWork& work) const {
  const bool has_state = HasStates();
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
  // If every token has an output, outputs are in the order of the tokens.
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
                   .one_token_at_a_time = work.one_token_at_a_time && work.tokens.size() > 1,
                   .keeps_states = has_state && KeepsStates(work.sequences.front()),
                   .injects = work.sequences.front().injects};
  return shape;
}

Result<CpuStep::StepGraph*> CpuStep::GraphFor(const GraphShape& shape) {
  StepGraph* graph = graphs_.Find(shape);
  if (graph == nullptr) {
    EBB_ASSIGN_OR_RETURN(graph, Build(shape));
  }
  ShrinkBuffers(shape.options.num_tokens);
  if (!graphs_.Hold(*graph)) return NoBuffers(shape.options.num_tokens);
  return graph;
}

void CpuStep::ShrinkBuffers(int num_tokens) {
  if (tokens_in_buffers_ > kTokensInKeptBuffers && num_tokens <= kTokensInKeptBuffers) {
    graphs_.buffers().Free();
    tokens_in_buffers_ = 0;
  }
  tokens_in_buffers_ = std::max(tokens_in_buffers_, num_tokens);
}

Result<CpuStep::StepGraph*> CpuStep::Build(const GraphShape& shape) {
  graphs_.MakeRoom(
      shape.is_of_several ? kMaxGraphsOfSeveral : kMaxGraphsOfOne,
      [&](const StepGraph& graph) { return graph.shape.is_of_several == shape.is_of_several; });
  std::list<StepGraph> made(1);
  StepGraph& graph = made.front();
  graph.shape = shape;
  graph.op = std::make_unique<AttentionOp>(&scratch_, shape.path);
  graph.context = MakeGraphContext(DecoderGraphMaxNodes(model_), kTensorsPerNode);
  if (graph.context == nullptr) return OutOfMemory("no memory for a graph");
  EBB_ASSIGN_OR_RETURN(graph.graph,
                       BuildDecoderGraph(model_, graph.context.get(), shape.options, *graph.op));
  return graphs_.Add(std::move(made));
}

void CpuStep::Reserve(const StepWork& work, const AttentionPath& path) {
  size_t tile = 0;
  for (const SequenceStep& sequence : work.sequences) {
    if (!sequence.in_tiles) continue;
    if (tile == scratch_.tiles.size()) scratch_.tiles.emplace_back(scratch_.kernel, scratch_.shape);
    scratch_.tiles[tile].rows.resize(scratch_.shape.num_kv_heads);
    if (sequence.cache->views().HasCompressedRows()) {
      scratch_.tiles[tile].merged.Reserve(*sequence.cache, model_.shape, scratch_.shape.format);
    }
    for (const int heads : kv_head_counts_) {
      scratch_.tiles[tile].attention.Reserve(heads, sequence.num_tokens(),
                                             sequence.cache->tables().max_rows(), threads_);
    }
    ++tile;
  }
  // Prompts of a batch end one after another; frees the memory of the tiles that this step does not
  // use.
  for (; tile < scratch_.tiles.size(); ++tile) scratch_.tiles[tile].merged.Release();
  if (path.num_folds > 0) ReserveFolds(work, path.num_folds);
  if (path.selects) ReserveSelection(work);
}

void CpuStep::ReserveFolds(const StepWork& work, int num_folds) {
  const size_t heads = scratch_.shape.num_kv_heads;
  size_t max_rows = 0;
  for (const SequenceStep& sequence : work.sequences) {
    if (!sequence.in_tiles) max_rows = std::max(max_rows, sequence.cache->tables().max_rows());
  }
  const int fold_tokens = (work.num_fold_tokens + num_folds - 1) / num_folds;
  while (static_cast<int>(scratch_.folds.size()) < std::max(num_folds, 2)) {
    scratch_.folds.emplace_back(scratch_.kernel, scratch_.shape, scratch_.states);
  }
  if (has_windows_ && scratch_.numbers.size() < max_rows) {
    scratch_.numbers.resize(max_rows + max_rows / 4);
    std::iota(scratch_.numbers.begin(), scratch_.numbers.end(), 0);
  }
  for (AttentionScratch::FoldScratch& fold : scratch_.folds) {
    fold.rows.resize(std::max(fold.rows.size(), fold_tokens * heads));
    if (has_windows_) fold.full_indices.resize(fold.rows.size());
    if (scratch_.shape.compressed.head_dim > 0) {
      fold.compressed.resize(fold.rows.size());
      fold.full_indices.resize(fold.rows.size());
      fold.compressed_indices.resize(fold.rows.size());
    }
    fold.queries.reserve(fold_tokens);
    fold.attention.Reserve(fold_tokens, max_rows, threads_);
  }
}

// Reserves memory for the selectors' choices before the graph runs, because a node must not fail.
void CpuStep::ReserveSelection(const StepWork& work) {
  const size_t heads = scratch_.shape.num_kv_heads;
  const size_t views = work.num_fold_tokens * heads;
  scratch_.selected.resize(std::max(scratch_.selected.size(), views));
  scratch_.selected_spans.resize(std::max(scratch_.selected_spans.size(), views));
  for (const SequenceStep& sequence : work.sequences) {
    if (sequence.selector == nullptr) continue;
    for (size_t i = 0; i < sequence.num_tokens() * heads; ++i) {
      AttentionScratch::Selected& selected = scratch_.selected[sequence.first_token * heads + i];
      const size_t max_rows = sequence.cache->tables().max_rows();
      ReserveMore(&selected.ranges, (max_rows + 1) / 2);
      ReserveMore(&selected.foreseen, (max_rows + 1) / 2);
      ReserveMore(&selected.chunks, max_rows / kChunkRows + 1);
      if (sequence.signals->wants_mass()) ReserveMore(&selected.rows, max_rows);
      selected.parts_ranked = 0;
    }
  }
}

void CpuStep::CopyHidden(const SequenceStep& sequence, const StepGraph& graph,
                         SignalBuffers* signals) {
  const std::vector<int>& layers = graph.shape.options.hidden_layers;
  const std::vector<int>& wanted = signals->needs().hidden_layers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto at = std::find(layers.begin(), layers.end(), wanted[i]) - layers.begin();
    const ggml_tensor* hidden = graph.graph.hidden[at];
    // Some heads give the row of the step's last token alone.
    const int num_rows = std::min(sequence.num_tokens(), static_cast<int>(hidden->ne[1]));
    const int skipped = sequence.num_tokens() - num_rows;
    std::memcpy(signals->Hidden(i) + skipped * hidden->ne[0],
                static_cast<const char*>(hidden->data) + sequence.first_token * hidden->nb[1],
                num_rows * hidden->nb[1]);
  }
}

void CpuStep::CopyEvictionLogits(const SequenceStep& sequence, const StepGraph& graph,
                                 SignalBuffers* signals) const {
  if (!signals->needs().eviction_logits) return;
  const Hyperparameters& h = model_.hparams;
  for (int layer = 0; layer < h.num_layers; ++layer) {
    const auto* channels = static_cast<const float*>(graph.graph.eviction_channels[layer]->data) +
                           size_t(sequence.first_token) * h.kv_heads[layer];
    const std::span<float> logits = signals->EvictionLogits(layer);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = h.eviction_scale * channels[i] - h.eviction_offset;
    }
  }
}

ggml_status CpuStep::Compute(const StepWork& work, ggml_cgraph* graph, StepCosts* costs) {
  if (costs == nullptr) return ggml_backend_graph_compute(backend_, graph);
  GraphCosts measured(graph);
  const double waited = WaitSeconds(work);
  ggml_backend_cpu_set_abort_callback(backend_, GraphCosts::NodeDone, &measured);
  measured.Begin();
  const ggml_status status = ggml_backend_graph_compute(backend_, graph);
  *costs = measured.End(WaitSeconds(work) - waited);
  ggml_backend_cpu_set_abort_callback(backend_, nullptr, nullptr);
  return status;
}

void CpuStep::ReserveStates(const StepWork& work) {
  const size_t num_sequences = work.sequences.size();
  const size_t needed = StateBatchBytes(model_.hparams.state_bytes, num_sequences);
  if (state_batch_bytes_ < needed) {
    auto larger = hwy::AllocateAligned<std::byte>(needed);
    if (larger == nullptr) throw std::bad_alloc();
    state_batch_ = std::move(larger);
    state_batch_bytes_ = needed;
  }
  for (const SequenceStep& sequence : work.sequences) {
    if (KeepsStates(sequence)) {
      sequence.state->ReserveAhead(sequence.tokens.size());
    } else {
      sequence.state->Reserve();
    }
  }
  states_.reserve(num_sequences);
}

void CpuStep::SetStates(const StepWork& work, StepGraph* graph) {
  states_.clear();
  for (const SequenceStep& sequence : work.sequences) {
    states_.push_back(KeepsStates(sequence) ? sequence.state->BeginAhead(sequence.tokens.size(),
                                                                         model_.hparams.state_parts)
                                            : sequence.state->BeginStep());
  }
  graph->graph.inputs->SetStates(states_, {state_batch_.get(), state_batch_bytes_});
}

Status CpuStep::Run(const StepWork& work, StepCosts* costs) {
  const bool has_state = HasStates();
  const GraphShape shape = ShapeOf(work);
  Reserve(work, shape.path);
  if (has_state) ReserveStates(work);
  EBB_ASSIGN_OR_RETURN(StepGraph * graph, GraphFor(shape));
  if (const auto rows = work.sequences.front().hidden_rows; !rows.empty()) {
    graph->graph.inputs->SetHiddenRows(rows);
  }
  graph->graph.inputs->Set(work.tokens, work.rope_positions, work.output_rows);
  StagedSequences staged(&staged_steps_);
  for (const SequenceStep& sequence : work.sequences) {
    const T1Reading all =
        sequence.keeps_cached_t1 ? T1Reading::kStagedAndCached : T1Reading::kStaged;
    EBB_RETURN_IF_ERROR(
        staged.Add(sequence, sequence.selector != nullptr ? T1Reading::kSelected : all));
    for (const Follower& follower : sequence.followers) follower.cache->FindAddresses();
  }
  scratch_.select_seconds = 0;
  graph->op->SetWork(&work, &staged);
  if (has_state) SetStates(work, graph);
  const ggml_status status = Compute(work, graph->graph.graph, costs);
  EBB_RETURN_IF_ERROR(staged.End());
  if (status != GGML_STATUS_SUCCESS) {
    return Internal(std::string("ggml failed a step: ") + ggml_status_to_string(status));
  }
  logits_ = graph->graph.logits;
  if (has_state) graph->graph.inputs->TakeStates();
  for (const SequenceStep& sequence : work.sequences) {
    if (has_state && KeepsStates(sequence)) {
      sequence.state->EndAhead(sequence.first + 1);
    } else if (has_state) {
      sequence.state->EndStep(sequence.first + sequence.num_tokens());
    }
    sequence.ForEachSignals([&](SignalBuffers* signals) {
      CopyHidden(sequence, *graph, signals);
      CopyEvictionLogits(sequence, *graph, signals);
    });
  }
  return OkStatus();
}

std::span<const float> CpuStep::logits(size_t i) const {
  const size_t vocab_size = logits_->ne[0];
  return {static_cast<const float*>(logits_->data) + i * vocab_size, vocab_size};
}

std::span<const float> CpuStep::outputs() const {
  const ggml_tensor* outputs = graphs_.last_used().graph.outputs;
  return {static_cast<const float*>(outputs->data), static_cast<size_t>(ggml_nelements(outputs))};
}

template <typename Builder>
Status CpuStep::BuildRows(int num_tokens, bool one_token_at_a_time, KeptRowGraph* kept,
                          const Builder& build) {
  if (kept->num_tokens == num_tokens && kept->one_token_at_a_time == one_token_at_a_time) {
    return OkStatus();
  }
  graphs_.buffers().Forget(kept->graph.graph);
  *kept = {};
  kept->context = MakeGraphContext(kRowGraphMaxNodes, kTensorsPerNode);
  if (kept->context == nullptr) return OutOfMemory("no memory for a graph");
  EBB_ASSIGN_OR_RETURN(kept->graph, build(kept->context.get()));
  kept->num_tokens = num_tokens;
  kept->one_token_at_a_time = one_token_at_a_time;
  return OkStatus();
}

Status CpuStep::ComputeRows(const KeptRowGraph& kept, std::span<const float> rows) {
  const RowGraph& graph = kept.graph;
  ShrinkBuffers(kept.num_tokens);
  if (!graphs_.buffers().Hold({kept.context.get(), graph.other_context}, graph.graph)) {
    return NoBuffers(kept.num_tokens);
  }
  std::memcpy(graph.input->data, rows.data(), rows.size_bytes());
  const ggml_status status = ggml_backend_graph_compute(backend_, graph.graph);
  if (status == GGML_STATUS_SUCCESS) return OkStatus();
  return Internal(std::string("ggml failed a graph of rows: ") + ggml_status_to_string(status));
}

Status CpuStep::ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) {
  const auto num_tokens = static_cast<int>(outputs.size() / OutputFloats());
  EBB_RETURN_IF_ERROR(
      BuildRows(num_tokens, one_token_at_a_time, &later_, [&](ggml_context* context) {
        return BuildLogitsGraph(model_, context, num_tokens, one_token_at_a_time);
      }));
  EBB_RETURN_IF_ERROR(ComputeRows(later_, outputs));
  logits_ = later_.graph.output;
  return OkStatus();
}

Result<std::span<const float>> CpuStep::EncodeFeatures(std::span<const float> features) {
  const size_t floats = model_.target->shape().embed_dim * model_.hparams.target_blocks.size();
  const auto num_tokens = static_cast<int>(features.size() / floats);
  EBB_RETURN_IF_ERROR(BuildRows(num_tokens, false, &features_, [&](ggml_context* context) {
    return BuildFeatureGraph(model_, context, num_tokens);
  }));
  EBB_RETURN_IF_ERROR(ComputeRows(features_, features));
  const ggml_tensor* const rows = features_.graph.output;
  return std::span(static_cast<const float*>(rows->data),
                   static_cast<size_t>(ggml_nelements(rows)));
}

}  // namespace ebb
