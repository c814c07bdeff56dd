#include "src/step/device/device_step.h"

#include <fmt/format.h>

#include <new>

#include "src/base/clock.h"
#include "src/base/sanitizers.h"

namespace ebb {

DeviceStep::DeviceStep(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
                       std::unique_ptr<HostAttention> host_attention, const OnThreads& on_threads)
    : model_(model),
      device_(use.device),
      has_t2_(shape.compressed.head_dim > 0),
      graphs_(model, device_, shape),
      inputs_(model, device_),
      t1_(model, use, shape, std::move(host_attention), on_threads, &inputs_),
      signals_(model, device_, on_threads) {}

Result<std::unique_ptr<DeviceStep>> DeviceStep::Create(
    const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
    std::unique_ptr<HostAttention> host_attention, const OnThreads& on_threads) {
  std::unique_ptr<DeviceStep> step(
      new DeviceStep(model, use, shape, std::move(host_attention), on_threads));
  EBB_RETURN_IF_ERROR(step->graphs_.CopyWeights());
  EBB_RETURN_IF_ERROR(use.device->Call([&] { return step->CheckOperations(); }));
  if (step->t1_.NeedsRates()) EBB_RETURN_IF_ERROR(step->t1_.FindOrMeasureRates());
  return step;
}

DeviceStep::~DeviceStep() {
  if (!device_->IsLost()) return;
  graphs_.Leak();
  signals_.Leak();
  Leak(&state_buffer_);
}

Status DeviceStep::CheckOperations() {
  using Below = DeviceGraphs::RowsBelowT0;
  const Below below = graphs_.HoldsT2() ? Below::kCompressed : Below::kNone;
  const bool has_t2_on_host = has_t2_ && !graphs_.HoldsT2();
  Status status = graphs_.Check(2, below);
  if (status.ok()) status = graphs_.Check(1, below);
  if (status.ok() && (has_t2_on_host || t1_.MayCompute())) {
    status = graphs_.Check(1, Below::kOnHost);
    if (!status.ok() && !has_t2_on_host && t1_.NeedsRates()) {
      t1_.AlwaysStream();
      status = OkStatus();
    }
  }
  graphs_.Clear();
  return status;
}

Status DeviceStep::Run(const StepWork& work, StepCosts* costs) {
  Status status;
  // `staged` is destroyed after the handler has waited for the device, because copies from and to
  // staging memory may be under way until then.
  StagedSequences staged(&staged_steps_);
  try {
    status = device_->Call([&] { return RunOnDevice(work, &staged, costs); });
  } catch (const std::bad_alloc&) {
    status = OutOfMemory("no memory for a step");
    const Status waited = device_->Call([&] {
      device_->Synchronize();
      return OkStatus();
    });
    if (!waited.ok()) status = waited;
  }
  if (!status.ok()) {
    // After a failure, lists and vectors on the device may be half written; the next step uploads
    // them again.
    graphs_.Forget();
  }
  return status;
}

Status DeviceStep::RunOnDevice(const StepWork& work, StagedSequences* staged, StepCosts* costs) {
  for (const SequenceStep& sequence : work.sequences) {
    sequence.cache->FindAddresses();
    for (const Follower& follower : sequence.followers) follower.cache->FindAddresses();
    if (sequence.num_tokens() == 1 || !HostAttention::HasCompressedRows(*sequence.cache)) continue;
    return Internal(
        fmt::format("a step of {} tokens of a sequence with rows in T2", sequence.num_tokens()));
  }
  EBB_RETURN_IF_ERROR(t1_.Begin(work, staged));
  const Status computed = ComputeStep(work, *staged, costs);
  const Status ended = staged->End();
  return computed.ok() ? ended : computed;
}

Status DeviceStep::ComputeStep(const StepWork& work, const StagedSequences& staged,
                               StepCosts* costs) {
  const double begin = SecondsNow();
  if (HasStates()) ReserveStates(work);
  EBB_ASSIGN_OR_RETURN(DeviceGraph* const graph, graphs_.For(work));
  inputs_.Set(work, graph);
  if (HasStates()) EBB_RETURN_IF_ERROR(SetStates(work, graph));
  if (DeviceT1::IsFor(work)) {
    EBB_RETURN_IF_ERROR(t1_.Compute(work, staged, graph));
  } else {
    for (const SequenceStep& sequence : work.sequences) inputs_.SetLists(sequence, graph);
    EBB_RETURN_IF_ERROR(device_->Compute(graph->graph.graph));
  }
  if (const ggml_tensor* const logits = graph->graph.logits; logits != nullptr) {
    logits_.resize(static_cast<size_t>(ggml_nelements(logits)));
    device_->Download(logits, 0, std::span(logits_));
  }
  signals_.Fetch(work, *graph);
  if (HasStates()) TakeStates(work, graph);
  // A device does not report the time of its nodes, so that one figure covers the whole step.
  if (costs != nullptr) *costs = {.other_seconds = SecondsNow() - begin};
  return OkStatus();
}

// Reserves host memory for the recurrent states before the step changes anything. May throw
// std::bad_alloc.
void DeviceStep::ReserveStates(const StepWork& work) {
  for (const SequenceStep& sequence : work.sequences) sequence.state->Reserve();
  states_.reserve(work.sequences.size());
}

// Copies the sequences' recurrent states to the device. Between steps they are in the host's
// memory, because sessions save, fork and roll back states there.
Status DeviceStep::SetStates(const StepWork& work, DeviceGraph* graph) {
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

// Copies the recurrent states back to the host. REQUIRES: the step has ended.
void DeviceStep::TakeStates(const StepWork& work, DeviceGraph* graph) {
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
