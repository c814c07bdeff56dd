#include "src/step/device/device_t1.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "src/base/clock.h"
#include "src/step/device/rates_file.h"

namespace ebb {
namespace {

// Returns the bytes of T1 that a step reads for layer 0, which represents all layers, because they
// read about as much. A row is read once for all queries of its sequence.
T1Bytes BytesOfFirstLayer(std::span<const SequenceStep> sequences, const AttentionShape& shape) {
  T1Bytes bytes;
  const size_t row_bytes = shape.format.RowBytes();
  for (const SequenceStep& sequence : sequences) {
    const SequenceCache& cache = *sequence.cache;
    bool any_in_t1 = false;
    for (int head = 0; head < cache.layout().NumKvHeads(0); ++head) {
      const size_t in_t1 = cache.views().CountsOf(0, head).rows_in_t1;
      bytes.rows += in_t1 * row_bytes;
      bytes.pages += cache.views().CountsOf(0, head).pages_in_t1 * shape.format.PageBytes();
      any_in_t1 |= in_t1 > 0;
    }
    if (!any_in_t1) continue;
    const size_t heads = size_t(shape.num_q_heads) * sequence.num_tokens();
    bytes.queries_and_states += heads * (2 * shape.format.head_dim + 1) * sizeof(float);
  }
  return bytes;
}

}  // namespace

DeviceT1::DeviceT1(const LoadedModel& model, const DeviceUse& use, const AttentionShape& shape,
                   std::unique_ptr<HostAttention> host_attention, OnThreads on_threads,
                   DeviceInputs* inputs)
    : model_(model),
      device_(use.device),
      use_(use),
      shape_(shape),
      host_attention_(std::move(host_attention)),
      on_threads_(std::move(on_threads)),
      inputs_(inputs) {}

Status DeviceT1::FindOrMeasureRates() {
  const std::string& path = use_.rates_file;
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
      AlwaysStream();
      return OkStatus();
    }
    EBB_RETURN_IF_ERROR(status);
    if (!path.empty()) (void)KeepRates(path, name, *rates);
  }
  rates_ = *rates;
  return OkStatus();
}

T1Reading DeviceT1::ReadingOf(const SequenceStep& sequence, bool may_stay) const {
  if (sequence.selector != nullptr) return T1Reading::kSelected;
  if (may_stay && MayReadInPlace(sequence)) return T1Reading::kInPlace;
  return sequence.keeps_cached_t1 ? T1Reading::kStagedAndCached : T1Reading::kStaged;
}

// Returns whether the host may attend to the sequence's rows of T1 in place. It must not if rows
// are hidden from the token, because the lists of such rows do not separate the tiers.
bool DeviceT1::MayReadInPlace(const SequenceStep& sequence) const {
  return sequence.num_tokens() == 1 && sequence.cache->page_bytes(Tier::kT1) > 0 &&
         !HidesRows(*sequence.cache, model_.hparams.num_layers);
}

T1Mode DeviceT1::ChooseMode(std::span<const SequenceStep> sequences) const {
  if (use_.t1_mode != T1Mode::kAuto) return use_.t1_mode;
  // Attention on the host gives the device's results only up to rounding.
  if (!use_.allow_inexact) return T1Mode::kStream;
  const T1Bytes bytes = BytesOfFirstLayer(sequences, shape_);
  return ComputeSeconds(rates_, bytes) < StreamSeconds(rates_, bytes) ? T1Mode::kCompute
                                                                      : T1Mode::kStream;
}

Status DeviceT1::Begin(const StepWork& work, StagedSequences* staged) {
  select_seconds_ = 0;
  const bool may_stay = ChooseMode(work.sequences) == T1Mode::kCompute;
  for (const SequenceStep& sequence : work.sequences) {
    EBB_RETURN_IF_ERROR(staged->Add(sequence, ReadingOf(sequence, may_stay)));
  }
  const auto reads_in_place = [](const SequenceStep& s) { return s.cache->views().ReadsInPlace(); };
  mode_ = std::ranges::any_of(work.sequences, reads_in_place) ? T1Mode::kCompute : T1Mode::kStream;
  return OkStatus();
}

bool DeviceT1::IsFor(const StepWork& work) {
  const auto reads_t1 = [](const SequenceStep& sequence) {
    return sequence.cache->t1_reader().bytes_read() > 0;
  };
  return Selects(work) || HostAttends(work) || std::ranges::any_of(work.sequences, reads_t1);
}

Status DeviceT1::Compute(const StepWork& work, const StagedSequences& staged, DeviceGraph* graph) {
  graph->MakeParts();
  for (DeviceGraph::Lists& lists : graph->lists) {
    if (lists.rows.has_value()) lists.rows->Begin();
  }
  const bool host_attends = HostAttends(work);
  size_t part = 0;
  EBB_RETURN_IF_ERROR(device_->Compute(graph->parts[part++].get()));
  const int num_attentions = model_.shape.NumAttentions();
  int num_layers = 0;  // that earlier attentions have read
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
      inputs_->SetListOfLayer(sequence, layer, reads_again, graph);
    }
    if (host_attends) EBB_RETURN_IF_ERROR(AttendOnHost(work, attention, part++, graph));
    EBB_RETURN_IF_ERROR(device_->Compute(graph->parts[part++].get()));
    staged.ReleaseLayer(attention);
  }
  if (host_attends) {
    for (size_t i = 0; i < host_queries_.size(); ++i) {
      FetchHostWeights(*graph, num_attentions - 1, &host_shares_[i]);
    }
    device_->Synchronize();
    AddMassOfHost(*graph);
  }
  for (DeviceGraph::Lists& lists : graph->lists) {
    if (lists.rows.has_value()) lists.rows->End();
  }
  return OkStatus();
}

void DeviceT1::FetchQueries(const StepWork& work, int attention, const DeviceGraph& graph) {
  const size_t size = size_t(model_.hparams.num_q_heads) * model_.hparams.head_dim;
  queries_.resize(work.sequences.size());
  rank_products_.resize(work.sequences.size());
  for (size_t i = 0; i < work.sequences.size(); ++i) {
    const SequenceStep& sequence = work.sequences[i];
    if (sequence.selector == nullptr) continue;
    queries_[i].resize(size);
    device_->Download(graph.tensors.q[attention], sequence.first_token * size,
                      std::span(queries_[i]));
    const size_t index = graph.IndexOf(sequence);
    rank_products_[i].clear();
    if (graph.shape.sequences[index].ranks.num_pages == 0) continue;
    const ggml_tensor* const products = graph.tensors.sequences[index].rank_products;
    rank_products_[i].resize(static_cast<size_t>(ggml_nelements(products)));
    device_->Download(products, 0, std::span(rank_products_[i]));
  }
  device_->Synchronize();
}

void DeviceT1::Choose(const SequenceStep& sequence, const BackendSequence& shape, int layer,
                      int head, std::span<const float> queries, std::span<const float> products,
                      Choice* choice) const {
  choice->ranges.clear();
  choice->foreseen.clear();
  if (products.empty()) {
    sequence.selector->Rank(layer, head, queries, 0, 1);
  } else {
    TakeRankProducts(shape.ranks, products, model_.hparams.num_q_heads, layer, head,
                     model_.hparams.kv_heads[layer], dynamic_cast<RankVectors*>(sequence.selector));
  }
  sequence.selector->Select(layer, head, queries, &choice->ranges);
  sequence.selector->Foresee(layer, head, &choice->foreseen);
}

void DeviceT1::SelectRows(const SequenceStep& sequence, size_t number, const StagedStep& staged,
                          int attention, DeviceGraph* graph) {
  const double start = SecondsNow();
  const std::span<const float> queries = queries_[number], products = rank_products_[number];
  const int layer = model_.shape.LayerRead(attention);
  const size_t heads = model_.hparams.kv_heads[layer];
  const size_t of_head = queries.size() / heads;
  const size_t index = graph->IndexOf(sequence);
  const BackendSequence& shape = graph->shape.sequences[index];
  const std::span<ggml_fp16_t> masks = inputs_->MasksOfLayer(index, layer, *graph);
  if (choices_.size() < heads) choices_.resize(heads);
  for (size_t head = 0; head < heads; ++head) {
    const size_t num_ranges =
        sequence.cache->views().View(layer, static_cast<int>(head)).size() / 2;
    choices_[head].ranges.reserve(num_ranges + 1);
    choices_[head].foreseen.reserve(num_ranges + 1);
  }
  on_threads_([&](int part, int num_parts) {
    for (int head = part; head < static_cast<int>(heads); head += num_parts) {
      ggml_fp16_t* const mask = masks.data() + size_t(head) * shape.NumKeys();
      DeviceInputs::FillMask(sequence, shape, layer, head, mask);
      Choose(sequence, shape, layer, head, queries.subspan(head * of_head, of_head), products,
             &choices_[head]);
      const size_t visible = sequence.cache->views().View(layer, head).size();
      choices_[head].rows_unread = DeviceInputs::HideOthers(choices_[head].ranges, visible, mask);
    }
  });
  staged.BeginSelection();
  staged.ClearAddresses(layer);
  for (int head = 0; head < static_cast<int>(heads); ++head) {
    staged.WantRows(layer, head, choices_[head].ranges);
    staged.ForeseeRows(layer, head, choices_[head].foreseen);
    *sequence.rows_unread += choices_[head].rows_unread;
  }
  staged.ReadWantedRows();
  select_seconds_ += SecondsNow() - start;
  inputs_->UploadMasks(index, layer, *graph);
}

// Queues graph part `part`, the attention's nodes that do not wait for the host; while they run,
// attends to the host's rows, and then uploads the result for the next part. Once the queries have
// arrived, the layer before has been computed, so that the mass of its host rows can be scaled.
Status DeviceT1::AttendOnHost(const StepWork& work, int attention, size_t part,
                              DeviceGraph* graph) {
  const size_t size = size_t(shape_.num_q_heads) * shape_.format.head_dim;
  if (attention == 0) host_shares_.resize(work.sequences.size());
  host_queries_.clear();
  for (const SequenceStep& sequence : work.sequences) {
    if (!HostAttention::IsFor(*sequence.cache)) continue;
    HostShare& of = host_shares_[host_queries_.size()];
    of.index = graph->IndexOf(sequence);
    of.q.resize(size);
    of.weights.resize(shape_.num_q_heads);
    device_->Download(graph->tensors.q[attention], sequence.first_token * size, std::span(of.q));
    host_queries_.push_back({.sequence = &sequence, .q = of.q.data()});
    if (attention > 0) FetchHostWeights(*graph, attention - 1, &of);
  }
  device_->Synchronize();
  EBB_RETURN_IF_ERROR(device_->Compute(graph->parts[part].get()));
  if (attention > 0) AddMassOfHost(*graph);
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    host_shares_[i].result.resize(HostAttention::ResultSize(shape_));
    host_queries_[i].result = host_shares_[i].result.data();
  }
  host_attention_->Attend(model_.shape.LayerRead(attention), host_queries_);
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    HostShare& of = host_shares_[i];
    if (graph->shape.sequences[of.index].is_eager) {
      // A head without rows on the host has a log-sum of minus infinity, which some backends'
      // softmax does not accept.
      for (float& log_sum : std::span(of.result).subspan(size)) {
        log_sum = std::max(log_sum, kNoRows);
      }
    }
    device_->Upload<float>(of.result, 0, graph->tensors.sequences[of.index].host);
  }
  return OkStatus();
}

void DeviceT1::FetchHostWeights(const DeviceGraph& graph, int attention, HostShare* of) const {
  const ggml_tensor* all = graph.tensors.sequences[of->index].host_weights;
  if (all == nullptr) return;
  device_->Download(all, attention * all->nb[1] / sizeof(float), std::span(of->weights));
}

void DeviceT1::AddMassOfHost(const DeviceGraph& graph) {
  for (size_t i = 0; i < host_queries_.size(); ++i) {
    HostShare& of = host_shares_[i];
    if (!graph.shape.sequences[of.index].is_eager) {
      const float* const here = of.result.data() + of.q.size();
      for (size_t head = 0; head < of.weights.size(); ++head) {
        const float all = of.weights[head];
        // Keeps a value that is not finite, so that AddMass() notices it.
        of.weights[head] = std::isfinite(all) ? std::exp2(here[head] - all) : all;
      }
    }
    host_attention_->AddMass(i, of.weights);
  }
}

}  // namespace ebb
