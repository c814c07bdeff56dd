#include "src/step/device/device_signals.h"

#include <algorithm>
#include <cmath>

#include "src/base/sanitizers.h"

namespace ebb {

void DeviceSignals::Leak() {
  for (ReadBuffer& buffer : read_) ebb::Leak(&buffer.pinned);
}

std::span<const float> DeviceSignals::Read(const ggml_tensor* tensor) {
  if (num_read_ == read_.size()) read_.emplace_back();
  ReadBuffer& to = read_[num_read_++];
  const auto size = static_cast<size_t>(ggml_nelements(tensor));
  // Allocates a quarter more than needed, so that a buffer that grows with the rows is rarely
  // replaced.
  if (to.size < size) to = MakeReadBuffer(size + size / 4);
  device_->Download(tensor, 0, std::span(to.data, size));
  return {to.data, size};
}

// Allocates a buffer, pinned if the backend can, so that copies overlap with the host's work.
DeviceSignals::ReadBuffer DeviceSignals::MakeReadBuffer(size_t size) const {
  ReadBuffer made = {.size = size};
  auto* const type = ggml_backend_dev_host_buffer_type(ggml_backend_get_device(device_->backend()));
  if (type != nullptr) {
    made.pinned.reset(ggml_backend_buft_alloc_buffer(type, size * sizeof(float)));
  }
  if (made.pinned != nullptr) {
    made.data = static_cast<float*>(ggml_backend_buffer_get_base(made.pinned.get()));
  } else {
    made.plain.resize(size);
    made.data = made.plain.data();
  }
  return made;
}

void DeviceSignals::Fetch(const StepWork& work, const DeviceGraph& graph) {
  using Spans = Fetched::Spans;
  const auto read_all = [&](const std::vector<ggml_tensor*>& tensors) {
    Spans spans;
    for (const ggml_tensor* tensor : tensors) spans.push_back(Read(tensor));
    return spans;
  };
  num_read_ = 0;
  const BackendTensors& tensors = graph.tensors;
  bool wants_queries = false;
  for (const SequenceStep& sequence : work.sequences) {
    sequence.ForEachSignals([&](const SignalBuffers* signals) {
      wants_queries = wants_queries || signals->needs().num_recent_queries > 0;
    });
  }
  const Fetched fetched = {.q = wants_queries ? read_all(tensors.q) : Spans(),
                           .k = read_all(tensors.k),
                           .v = read_all(tensors.v),
                           .k_before_rope = read_all(tensors.k_before_rope),
                           .hidden = read_all(graph.graph.hidden),
                           .eviction_channels = read_all(graph.graph.eviction_channels)};
  Spans mass;
  for (const BackendTensors::OfSequence& sequence : tensors.sequences) {
    mass.push_back(sequence.mass == nullptr ? std::span<const float>() : Read(sequence.mass));
  }
  device_->Synchronize();
  for (const SequenceStep& sequence : work.sequences) {
    const size_t index = graph.IndexOf(sequence);
    if (!mass[index].empty()) TakeMass(sequence, graph, index, mass[index]);
    sequence.ForEachSignals([&](SignalBuffers* signals) {
      if (!signals->needs().Empty()) CopySignals(sequence, graph, fetched, signals);
    });
  }
}

int DeviceSignals::StoringAttention(int layer) const {
  for (int attention = layer;; ++attention) {
    if (model_.shape.LayerRead(attention) == layer) return attention;
  }
}

void DeviceSignals::CopySignals(const SequenceStep& sequence, const DeviceGraph& graph,
                                const Fetched& fetched, SignalBuffers* signals) const {
  const Hyperparameters& h = model_.hparams;
  const auto head_dim = static_cast<size_t>(h.head_dim);
  for (int layer = 0; layer < h.num_layers; ++layer) {
    const int heads = h.kv_heads[layer];
    for (int token = 0; token < sequence.num_tokens(); ++token) {
      const size_t at = sequence.first_token + token;
      for (int head = 0; head < heads; ++head) {
        const auto copy = [&](const Fetched::Spans& from, float* to) {
          if (to == nullptr) return;
          std::ranges::copy(from[layer].subspan((at * heads + head) * head_dim, head_dim), to);
        };
        copy(fetched.k, signals->Keys(layer, token, head));
        copy(fetched.v, signals->Values(layer, token, head));
        copy(fetched.k_before_rope, signals->KeysBeforeRope(layer, token, head));
      }
      float* const query = signals->Query(layer, token);
      const size_t size = h.num_q_heads * head_dim;
      if (query == nullptr) continue;
      std::ranges::copy(fetched.q[StoringAttention(layer)].subspan(at * size, size), query);
    }
    if (!signals->needs().eviction_logits) continue;
    const std::span<float> logits = signals->EvictionLogits(layer);
    const auto from =
        fetched.eviction_channels[layer].subspan(size_t(sequence.first_token) * heads);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = h.eviction_scale * from[i] - h.eviction_offset;
    }
  }
  const std::vector<int>& wanted = signals->needs().hidden_layers;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& layers = graph.shape.options.hidden_layers;
    const size_t of_graph = std::ranges::find(layers, wanted[i]) - layers.begin();
    const size_t width = h.embed_dim;
    const auto from = fetched.hidden[of_graph];
    std::ranges::copy(from.subspan(sequence.first_token * width, sequence.num_tokens() * width),
                      signals->Hidden(i));
  }
}

void DeviceSignals::TakeMass(const SequenceStep& sequence, const DeviceGraph& graph, size_t index,
                             std::span<const float> mass_of_layers) const {
  const BackendSequence& described = graph.shape.sequences[index];
  const auto take = [&](int layer) {
    const MassTarget target = sequence.signals->Mass(layer, 0);
    const auto first_array = [&](int of) {
      return static_cast<size_t>(graph.attention->FirstMassArray(described.mass, of));
    };
    const std::span<const float> mass =
        mass_of_layers.subspan(first_array(layer) * described.NumKeys(),
                               (first_array(layer + 1) - first_array(layer)) * described.NumKeys());
    if (!std::ranges::all_of(mass, [](float x) { return std::isfinite(x); })) {
      *target.not_finite = true;
      return;
    }
    if (*target.not_finite) return;  // the host's rows gave a NaN
    const int num_q = model_.hparams.num_q_heads, kv_heads = model_.hparams.kv_heads[layer];
    const auto arrays = static_cast<int>(mass.size() / described.NumKeys());
    for (int array = 0; array < arrays; ++array) {
      const int q_head = array * (num_q / arrays);
      const int kv_head = q_head / (num_q / kv_heads);
      const float* const from = mass.data() + size_t(array) * described.NumKeys();
      float* const to = target.per_query_head[q_head];
      const auto add = [&](std::span<const uint32_t> elements, const float* next) {
        for (const uint32_t element : elements) to[element] += *next++;
      };
      const RowViews& views = sequence.cache->views();
      if (described.num_compressed > 0) {
        add(views.IndicesOf(layer, kv_head).compressed, from + described.num_rows);
      }
      if (views.ReadsInPlace()) {
        add(views.RowsIn(Tier::kT0, layer, kv_head).indices, from);
        continue;
      }
      const auto full = views.IndicesOf(layer, kv_head).full;
      add(full, from);
      if (!full.empty()) continue;
      const size_t size = views.View(layer, kv_head).slots.size();
      for (size_t row = 0; row < size; ++row) to[row] += from[row];
    }
  };
  const int num_layers = model_.hparams.num_layers;
  // Several layers may add to one array.
  if (sequence.signals->needs().mass == MassNeed::kSummed) {
    for (int layer = 0; layer < num_layers; ++layer) take(layer);
    return;
  }
  on_threads_([&](int part, int num_parts) {
    for (int layer = part; layer < num_layers; layer += num_parts) take(layer);
  });
}

}  // namespace ebb
