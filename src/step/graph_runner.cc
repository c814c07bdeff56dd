#include "src/step/graph_runner.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>
#include <vector>

#include "src/base/ggml_deleter.h"
#include "src/model/loaded/loaded_model.h"
#include "src/step/cpu/cpu_step.h"
#include "src/step/device/device_step.h"
#include "src/step/rotation/key_rotation.h"

namespace ebb {
namespace {

// kPoll is how long ggml's threads spin for the next graph before they sleep, in ggml's unit: 0.2
// ms, or a few ms if ggml is not patched. The time between two steps is mostly shorter; spinning
// longer would take processors from other work.
constexpr uint32_t kPoll = 1;

// Returns whether one graph with recurrent states can compute the step: all sequences have the same
// number of tokens, in the sequences' order, and only a sequence alone has tokens that it does not
// take.
bool IsUniform(const StepWork& work) {
  const int num_tokens = work.sequences.front().num_tokens();
  if (work.sequences.size() == 1) return true;
  for (size_t i = 0; i < work.sequences.size(); ++i) {
    const SequenceStep& sequence = work.sequences[i];
    if (sequence.num_tokens() != num_tokens || sequence.num_taken() != num_tokens ||
        sequence.first_token != static_cast<int>(i) * num_tokens) {
      return false;
    }
  }
  return true;
}

// Returns the work of only these sequences of the step, given by their indices.
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

}  // namespace

struct GraphRunner::Impl {
  const LoadedModel& model;
  const AttentionKernel& kernel;
  const AttentionShape shape;
  const int threads;
  BackendDevice* const device;  // null: the processor computes the steps
  std::unique_ptr<ggml_threadpool, GgmlDeleter> threadpool;
  std::unique_ptr<ggml_backend, GgmlDeleter> backend;
  // Is a graph of one node that calls team_work, by which other work runs on ggml's threads.
  std::unique_ptr<ggml_context, GgmlDeleter> team_ctx;
  ggml_cgraph* team_graph = nullptr;
  const std::function<void(int, int)>* team_work = nullptr;  // set while team_graph runs
  std::unique_ptr<StepBackend> steps;
  std::vector<float> logits_of_parts;  // the last step's logits if it was divided; else empty

  Status StartThreads();
  Status BuildTeam();
  void RunOnThreads(const std::function<void(int, int)>& work);
  static void TeamNode(ggml_tensor* node, int part, int num_parts, void* impl);
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
  std::unique_ptr<Impl> impl(new Impl{.model = loaded,
                                      .kernel = kernel,
                                      .shape = shape,
                                      .threads = threads,
                                      .device = device.device});
  EBB_RETURN_IF_ERROR(impl->StartThreads());
  EBB_RETURN_IF_ERROR(impl->BuildTeam());
  if (device.device != nullptr) {
    const HostAttention::OnThreads on_threads = [team = impl.get()](const auto& work) {
      team->RunOnThreads(work);
    };
    auto host_attention = std::make_unique<HostAttention>(kernel, shape, threads, on_threads);
    EBB_ASSIGN_OR_RETURN(impl->steps, DeviceStep::Create(loaded, device, shape,
                                                         std::move(host_attention), on_threads));
  } else {
    impl->steps = std::make_unique<CpuStep>(loaded, kernel, shape, impl->backend.get(), threads);
  }
  return std::unique_ptr<GraphRunner>(new GraphRunner(std::move(impl)));
}

Status GraphRunner::Impl::StartThreads() {
  backend.reset(ggml_backend_cpu_init());
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  params.poll = kPoll;
  threadpool.reset(ggml_threadpool_new(&params));
  if (backend == nullptr || threadpool == nullptr) {
    return OutOfMemory("ggml could not start " + std::to_string(threads) + " threads");
  }
  ggml_backend_cpu_set_n_threads(backend.get(), threads);
  ggml_backend_cpu_set_threadpool(backend.get(), threadpool.get());
  return OkStatus();
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
const StepBackend& GraphRunner::steps() const { return *impl_->steps; }

Status GraphRunner::Run(const StepWork& work, StepCosts* costs) {
  EBB_RETURN_IF_ERROR(RunParts(work, costs));
  // Checks after the step, so that results of weights that changed during the step are not used.
  return impl_->model.CheckFilesUnchanged();
}

// Runs a step of a model with recurrent state as several: such layers take the same number of
// tokens of each sequence, and keep states after each token for one sequence alone. One step has
// all sequences with a single token; each other sequence has its own.
Status GraphRunner::RunParts(const StepWork& work, StepCosts* costs) {
  impl_->logits_of_parts.clear();
  if (impl_->model.hparams.state_bytes == 0 || IsUniform(work)) {
    return impl_->steps->Run(work, costs);
  }
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
    EBB_RETURN_IF_ERROR(impl_->steps->Run(PartOf(work, sequences), costs));
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

Status GraphRunner::RotateKeys(SequenceCache* cache, int group, const RopePositions& rope,
                               Position end, Position next, UnrotatedKeyCache* unrotated_keys) {
  std::vector<Position> turns;
  rope.Turns(*cache, group, end, &turns);
  Device* const device = impl_->device != nullptr ? impl_->device : &CpuDevice();
  TurningKeys keys(cache, device, group, turns);
  EBB_RETURN_IF_ERROR(keys.Read());
  unrotated_keys->PutBack(*cache, group, rope, next, keys, turns);
  const KeyRotator by = {.model = impl_->model,
                         .kernel = impl_->kernel,
                         .type = impl_->shape.format.type,
                         .backend = impl_->backend.get()};
  const auto streams = cache->layout().StreamsOf(group);
  for (size_t i = 0; i < streams.size(); ++i) {
    EBB_RETURN_IF_ERROR(RotateKeysOfStream(by, streams[i].layer, keys.OfStream(i), turns));
  }
  return keys.Write();
}

std::span<const float> GraphRunner::logits(size_t i) const {
  if (impl_->logits_of_parts.empty()) return impl_->steps->logits(i);
  const size_t size = impl_->model.hparams.vocab_size;
  return std::span(impl_->logits_of_parts).subspan(i * size, size);
}

Status GraphRunner::ComputeLogits(std::span<const float> outputs, bool one_token_at_a_time) try {
  EBB_RETURN_IF_ERROR(impl_->steps->ComputeLogits(outputs, one_token_at_a_time));
  return impl_->model.CheckFilesUnchanged();
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for logits");
}

Result<std::span<const float>> GraphRunner::EncodeFeatures(std::span<const float> features) try {
  EBB_ASSIGN_OR_RETURN(const std::span<const float> rows, impl_->steps->EncodeFeatures(features));
  EBB_RETURN_IF_ERROR(impl_->model.CheckFilesUnchanged());
  return rows;
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for the rows of a head");
}

}  // namespace ebb
