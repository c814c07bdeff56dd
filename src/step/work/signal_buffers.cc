#include "src/step/work/signal_buffers.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ebb {

SignalBuffers::SignalBuffers(const ModelShape& shape, Granularity granularity,
                             const SignalNeeds& needs)
    : shape_(shape), layout_(shape, granularity), granularity_(granularity), needs_(needs) {
  const int groups = layout_.num_groups();
  for (int group = 0; group < groups; ++group) {
    switch (needs.mass) {
      case MassNeed::kNone:
        mass_heads_.push_back(0);
        break;
      case MassNeed::kSummed:
        mass_heads_.push_back(1);
        break;
      case MassNeed::kPerKvHead:
        mass_heads_.push_back(layout_.NumStreamsOf(group));
        break;
      case MassNeed::kPerQueryHead:
        mass_heads_.push_back(layout_.AllQueryHeadsOf(group));
        break;
    }
  }
  step_.hidden_layers = needs.hidden_layers;
  group_begin_.resize(groups + 1);
  group_rows_.resize(groups);
  group_new_rows_.resize(groups);
  not_finite_ = std::make_unique<bool[]>(shape.num_layers);
  queries_.resize(size_t(shape.num_layers) * needs.num_recent_queries * shape.num_q_heads *
                  shape.head_dim);
}

void SignalBuffers::Begin(const SequenceCache& cache, StepKind kind, Position first, int num_tokens,
                          Division division) {
  step_.kind = kind;
  step_.first_position = first;
  step_.num_tokens = num_tokens;
  wants_mass_ =
      needs_.mass != MassNeed::kNone && (kind == StepKind::kDecode || needs_.mass_in_prefill);
  if (needs_.Empty()) return;
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    const int of_cache = cache.layout().num_groups() == 1 ? 0 : static_cast<int>(group);
    group_rows_[group] = static_cast<int>(cache.positions(of_cache).size());
    group_new_rows_[group] = num_tokens;
  }
  num_mass_tokens_ = division == Division::kByToken ? num_tokens : 1;
  if (wants_mass_) {
    LayOutMass();
    std::ranges::fill(mass_, 0.0f);
    std::fill_n(not_finite_.get(), size_t(num_mass_tokens_) * shape_.num_layers, false);
  }
  BeginCopies(num_tokens);
  BeginQueries(num_tokens);
}

size_t SignalBuffers::MassBytesPerToken(const SequenceCache& cache) const {
  size_t floats = 0;
  for (int group = 0; group < layout_.num_groups(); ++group) {
    floats += size_t(mass_heads_[group]) * cache.positions(group).size();
  }
  return floats * sizeof(float);
}

// Returns to which of its group's mass arrays the query head's mass is added.
int SignalBuffers::MassArray(int layer, int q_head) const {
  const int per_kv = layout_.QueryHeadsPerKvHead(layer);
  const int stream = layout_.StreamOf(layer, q_head / per_kv);
  switch (needs_.mass) {
    case MassNeed::kNone:
    case MassNeed::kSummed:
      return 0;
    case MassNeed::kPerKvHead:
      return stream - layout_.FirstStreamOf(layout_.GroupOf(stream));
    case MassNeed::kPerQueryHead:
      break;
  }
  switch (granularity_) {
    case Granularity::kToken:
      return layer * shape_.num_q_heads + q_head;
    case Granularity::kLayer:
      return q_head;
    case Granularity::kHead:
      return q_head % per_kv;
  }
  return 0;
}

void SignalBuffers::LayOutMass() {
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    group_begin_[group + 1] = group_begin_[group] + size_t(mass_heads_[group]) * group_rows_[group];
  }
  if (num_mass_tokens_ > most_mass_tokens_) {
    not_finite_ = std::make_unique<bool[]>(size_t(num_mass_tokens_) * shape_.num_layers);
    most_mass_tokens_ = num_mass_tokens_;
  }
  mass_.resize(group_begin_.back() * num_mass_tokens_);
  mass_targets_.resize(size_t(num_mass_tokens_) * shape_.num_layers * shape_.num_q_heads);
  auto target = mass_targets_.begin();
  for (int token = 0; token < num_mass_tokens_; ++token) {
    float* const of_token = mass_.data() + token * group_begin_.back();
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      for (int head = 0; head < shape_.num_q_heads; ++head) {
        const int kv_head = head / layout_.QueryHeadsPerKvHead(layer);
        const int group = layout_.GroupOf(layout_.StreamOf(layer, kv_head));
        *target++ =
            of_token + group_begin_[group] + size_t(MassArray(layer, head)) * group_rows_[group];
      }
    }
  }
}

void SignalBuffers::BeginCopies(int num_tokens) {
  // Resizes *data to `floats` floats for each token and kv head of every layer (0 unless `wanted`),
  // and sets *spans to the parts of the layers.
  const auto lay_out = [&](bool wanted, size_t floats, std::vector<float>* data,
                           std::vector<std::span<const float>>* spans) {
    if (!wanted) return;
    data->resize(floats * num_tokens * layout_.num_streams());
    spans->clear();
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      spans->push_back(std::span(*data).subspan(
          VectorAt(layer, 0, 0) * floats, size_t(num_tokens) * layout_.NumKvHeads(layer) * floats));
    }
  };
  lay_out(needs_.keys, shape_.head_dim, &keys_, &step_.keys);
  lay_out(needs_.keys_before_rope, shape_.head_dim, &keys_before_rope_, &step_.keys_before_rope);
  lay_out(needs_.values, shape_.head_dim, &values_, &step_.values);
  lay_out(needs_.eviction_logits, 1, &eviction_logits_, &step_.eviction_logits);
  if (needs_.hidden_layers.empty()) return;
  const size_t floats = size_t(num_tokens) * shape_.embed_dim;
  hidden_.resize(floats * needs_.hidden_layers.size());
  step_.hidden.clear();
  for (size_t i = 0; i < needs_.hidden_layers.size(); ++i) {
    step_.hidden.push_back(std::span(hidden_).subspan(i * floats, floats));
  }
}

// Drops the oldest queries of each layer's history to make room for those of the step, and moves
// the others to its beginning; the graph's nodes write the step's queries after them.
void SignalBuffers::BeginQueries(int num_tokens) {
  if (needs_.num_recent_queries == 0) return;
  const int room = needs_.num_recent_queries;
  const int kept = std::clamp(room - num_tokens, 0, step_.num_recent);
  const size_t query = size_t(shape_.num_q_heads) * shape_.head_dim;
  step_.recent_queries.clear();
  const int now = std::min(room, kept + num_tokens);
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    float* of_layer = queries_.data() + size_t(layer) * room * query;
    std::memmove(of_layer, of_layer + size_t(step_.num_recent - kept) * query,
                 size_t(kept) * query * sizeof(float));
    step_.recent_queries.push_back({of_layer, size_t(now) * query});
  }
  step_.num_recent = now;
}

void SignalBuffers::TakeMass(const SignalBuffers& all, const SequenceCache& cache) {
  if (!wants_mass_) return;
  const auto queries = static_cast<size_t>(step_.num_tokens);
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    const auto positions = cache.positions(static_cast<int>(group));
    for (int head = 0; head < mass_heads_[group]; ++head) {
      const float* from =
          all.mass_.data() + all.group_begin_[group] + size_t(head) * all.group_rows_[group];
      float* to = mass_.data() + group_begin_[group] + size_t(head) * group_rows_[group];
      for (size_t row = 0; row < positions.size(); ++row) to[row] = from[positions[row]];
      if (step_.kind != StepKind::kDecode || queries == 1) continue;
      // Divides by the number of queries that see the row: all queries of the step or, for a row
      // that the step appended, its own query and the later ones.
      for (size_t row = 0; row < positions.size(); ++row) {
        const size_t left = positions.size() - row;
        to[row] /= static_cast<float>(std::min(left, queries));
      }
    }
  }
  std::copy_n(all.not_finite_.get(), shape_.num_layers, not_finite_.get());
}

MassTarget SignalBuffers::Mass(int layer, int token) {
  if (!wants_mass_) return {};
  const size_t array = size_t(num_mass_tokens_ > 1 ? token : 0) * shape_.num_layers + layer;
  return {.per_query_head = std::span<float* const>(mass_targets_)
                                .subspan(array * shape_.num_q_heads, shape_.num_q_heads),
          .not_finite = &not_finite_[array]};
}

float* SignalBuffers::RowAt(std::vector<float>* data, int layer, int token, int kv_head) const {
  if (data->empty()) return nullptr;
  return data->data() + VectorAt(layer, token, kv_head) * shape_.head_dim;
}

float* SignalBuffers::Keys(int layer, int token, int kv_head) {
  return RowAt(&keys_, layer, token, kv_head);
}
float* SignalBuffers::KeysBeforeRope(int layer, int token, int kv_head) {
  return RowAt(&keys_before_rope_, layer, token, kv_head);
}
float* SignalBuffers::Values(int layer, int token, int kv_head) {
  return RowAt(&values_, layer, token, kv_head);
}

float* SignalBuffers::Query(int layer, int token) {
  const int index = step_.num_recent - step_.num_tokens + token;
  if (needs_.num_recent_queries == 0 || index < 0) return nullptr;
  const size_t query = size_t(layer) * needs_.num_recent_queries + index;
  return queries_.data() + query * shape_.num_q_heads * shape_.head_dim;
}

float* SignalBuffers::Hidden(size_t index) {
  return hidden_.data() + index * step_.num_tokens * shape_.embed_dim;
}

std::span<float> SignalBuffers::EvictionLogits(int layer) {
  const size_t floats = size_t(step_.num_tokens) * layout_.NumKvHeads(layer);
  return std::span(eviction_logits_).subspan(VectorAt(layer, 0, 0), floats);
}

SignalBuffers::TokenSignals SignalBuffers::SignalsOf(int token) const {
  TokenSignals of_token;
  const auto copy_rows = [&](const std::vector<float>& all, size_t floats, std::vector<float>* to) {
    if (all.empty()) return;
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      const auto begin = all.begin() + VectorAt(layer, token, 0) * floats;
      to->insert(to->end(), begin, begin + layout_.NumKvHeads(layer) * floats);
    }
  };
  copy_rows(keys_, shape_.head_dim, &of_token.keys);
  copy_rows(keys_before_rope_, shape_.head_dim, &of_token.keys_before_rope);
  copy_rows(values_, shape_.head_dim, &of_token.values);
  copy_rows(eviction_logits_, 1, &of_token.eviction_logits);
  for (const std::span<const float> layer : step_.hidden) {
    const auto vector = layer.subspan(size_t(token) * shape_.embed_dim, shape_.embed_dim);
    of_token.hidden.insert(of_token.hidden.end(), vector.begin(), vector.end());
  }
  if (!wants_mass_) return of_token;
  const int hidden_rows = num_mass_tokens_ - 1 - token;  // of the tokens after this one
  const auto of_arrays = mass_.begin() + token * group_begin_.back();
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    const int rows = of_token.rows.emplace_back(group_rows_[group] - hidden_rows);
    for (int head = 0; head < mass_heads_[group]; ++head) {
      const auto begin = of_arrays + group_begin_[group] + size_t(head) * group_rows_[group];
      of_token.mass.insert(of_token.mass.end(), begin, begin + rows);
    }
  }
  const bool* const not_finite = &not_finite_[size_t(token) * shape_.num_layers];
  of_token.not_finite.assign(not_finite, not_finite + shape_.num_layers);
  return of_token;
}

void SignalBuffers::KeepFirst() {
  const auto move_rows = [&](std::vector<float>* all, size_t floats) {
    if (all->empty()) return;
    for (int layer = 0; layer < shape_.num_layers; ++layer) {
      std::copy_n(all->begin() + VectorAt(layer, 0, 0) * floats, layout_.NumKvHeads(layer) * floats,
                  all->begin() + size_t(layout_.StreamOf(layer, 0)) * floats);
    }
  };
  move_rows(&keys_, shape_.head_dim);
  move_rows(&keys_before_rope_, shape_.head_dim);
  move_rows(&values_, shape_.head_dim);
  move_rows(&eviction_logits_, 1);
  for (size_t i = 0; i < step_.hidden.size(); ++i) {
    std::copy_n(step_.hidden[i].begin(), shape_.embed_dim,
                hidden_.begin() + i * size_t(shape_.embed_dim));
  }
  KeepFirstMass();
  step_.num_tokens = 1;
  BeginCopies(1);
}

void SignalBuffers::KeepFirstMass() {
  const int hidden_rows = std::exchange(num_mass_tokens_, 1) - 1;
  size_t from = 0, to = 0;
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    const int all_rows = group_rows_[group];
    group_rows_[group] -= hidden_rows;
    group_new_rows_[group] = 1;
    for (int head = 0; wants_mass_ && head < mass_heads_[group]; ++head) {
      std::copy_n(mass_.begin() + from, group_rows_[group], mass_.begin() + to);
      from += all_rows;
      to += group_rows_[group];
    }
  }
  if (wants_mass_) LayOutMass();
}

void SignalBuffers::Set(const TokenSignals& token) {
  std::ranges::copy(token.keys, keys_.begin());
  std::ranges::copy(token.keys_before_rope, keys_before_rope_.begin());
  std::ranges::copy(token.values, values_.begin());
  std::ranges::copy(token.eviction_logits, eviction_logits_.begin());
  std::ranges::copy(token.hidden, hidden_.begin());
  if (!wants_mass_) return;
  auto from = token.mass.begin();
  for (size_t group = 0; group < group_rows_.size(); ++group) {
    // Rows that have left a sliding window since the mass was computed were the group's first ones.
    const int expired = token.rows[group] - group_rows_[group];
    for (int head = 0; head < mass_heads_[group]; ++head) {
      std::copy_n(from + expired, group_rows_[group],
                  mass_.begin() + group_begin_[group] + size_t(head) * group_rows_[group]);
      from += token.rows[group];
    }
  }
  std::ranges::copy(token.not_finite, not_finite_.get());
}

GroupSignals SignalBuffers::Group(int group) const {
  GroupSignals signals = {.num_rows = group_rows_[group], .num_new_rows = group_new_rows_[group]};
  if (!wants_mass_) return signals;
  signals.mass =
      std::span(mass_).subspan(group_begin_[group], group_begin_[group + 1] - group_begin_[group]);
  signals.num_mass_heads = mass_heads_[group];
  const int layers_per_group = granularity_ == Granularity::kToken ? shape_.num_layers : 1;
  const int first_layer = layout_.LayerOf(layout_.FirstStreamOf(group));
  for (int i = 0; i < layers_per_group; ++i) {
    signals.num_layers_counted += not_finite_[first_layer + i] ? 0 : 1;
  }
  return signals;
}

void SignalBuffers::Forget() { step_.num_recent = 0; }

void SignalBuffers::Save(StateWriter* to) const {
  const size_t query = size_t(shape_.num_q_heads) * shape_.head_dim;
  to->Number<int32_t>(step_.num_recent);
  for (int layer = 0; step_.num_recent > 0 && layer < shape_.num_layers; ++layer) {
    const auto of_layer =
        std::span(queries_).subspan(size_t(layer) * needs_.num_recent_queries * query);
    to->Numbers<float>(of_layer.first(size_t(step_.num_recent) * query));
  }
}

void SignalBuffers::Load(StateReader* from) {
  const size_t query = size_t(shape_.num_q_heads) * shape_.head_dim;
  const auto num_saved = from->Number<int32_t>();
  if (num_saved < 0) from->Fail("a negative number of recent queries");
  // The session that saved the history may have kept more or fewer queries than these signals need;
  // the newest are loaded.
  step_.num_recent = std::clamp(num_saved, 0, needs_.num_recent_queries);
  for (int layer = 0; num_saved > 0 && layer < shape_.num_layers; ++layer) {
    const auto of_layer = from->Numbers<float>();
    if (of_layer.size() != size_t(num_saved) * query) from->Fail("queries are missing");
    if (!from->ok()) break;
    std::ranges::copy(std::span(of_layer).last(size_t(step_.num_recent) * query),
                      queries_.begin() + size_t(layer) * needs_.num_recent_queries * query);
  }
  if (!from->ok()) step_.num_recent = 0;
}

}  // namespace ebb
