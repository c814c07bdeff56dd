#include "tests/support/policy/policy_harness.h"

#include <algorithm>
#include <limits>

#include "src/base/attention_layout.h"

namespace ebb {
namespace {

uint64_t Hash(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9fb21c651e98df25;
  x = (x ^ (x >> 28)) * 0x9fb21c651e98df25;
  return x ^ (x >> 32);
}

}  // namespace

MadeUpSignals::MadeUpSignals(const ModelShape& shape, Granularity granularity,
                             const SignalNeeds& needs, uint64_t seed, Fault fault)
    : shape_(shape), granularity_(granularity), needs_(needs), seed_(seed), fault_(fault) {}

float MadeUpSignals::Uniform(uint64_t a, uint64_t b) const {
  const uint64_t hash = Hash(Hash(Hash(seed_ + 1) ^ (num_steps_ << 32) ^ a) ^ b);
  return static_cast<float>(hash >> 40) * 0x1p-24f;
}

void MadeUpSignals::Fill(size_t num_arrays, const std::function<size_t(size_t)>& length,
                         uint64_t salt, std::vector<std::vector<float>>* data,
                         std::vector<std::span<const float>>* spans) {
  data->assign(num_arrays, {});
  spans->clear();
  for (size_t i = 0; i < num_arrays; ++i) {
    (*data)[i].resize(length(i));
    for (size_t j = 0; j < (*data)[i].size(); ++j) (*data)[i][j] = Uniform(salt + i, j) - 0.5f;
    spans->push_back((*data)[i]);
  }
}

const StepSignals& MadeUpSignals::Step(StepKind kind, Position first, int num_tokens) {
  ++num_steps_;
  step_ = {};
  step_.kind = kind;
  step_.first_position = first;
  step_.num_tokens = num_tokens;
  const size_t layers = shape_.num_layers;
  const auto kv_size = [&](size_t layer) {
    return static_cast<size_t>(num_tokens) * shape_.NumKvHeads(static_cast<int>(layer)) *
           shape_.head_dim;
  };
  if (needs_.keys) Fill(layers, kv_size, 1000, &keys_, &step_.keys);
  if (needs_.keys_before_rope) {
    Fill(layers, kv_size, 2000, &keys_before_rope_, &step_.keys_before_rope);
  }
  if (needs_.values) Fill(layers, kv_size, 3000, &values_, &step_.values);
  if (needs_.eviction_logits) {
    Fill(
        layers, [&](size_t layer) { return kv_size(layer) / shape_.head_dim; }, 6000,
        &eviction_logits_, &step_.eviction_logits);
    if (fault_ == Fault::kNanMass) eviction_logits_[0][0] = std::numeric_limits<float>::infinity();
    if (fault_ == Fault::kNanLayers) {
      eviction_logits_[0][0] = std::numeric_limits<float>::quiet_NaN();
    }
  }
  if (needs_.num_recent_queries > 0) {
    step_.num_recent = std::min(needs_.num_recent_queries, first + num_tokens);
    const size_t size =
        static_cast<size_t>(step_.num_recent) * shape_.num_q_heads * shape_.head_dim;
    Fill(
        layers, [&](size_t) { return size; }, 4000, &queries_, &step_.recent_queries);
  }
  step_.hidden_layers = needs_.hidden_layers;
  if (!needs_.hidden_layers.empty()) {
    const size_t size = static_cast<size_t>(num_tokens) * shape_.embed_dim;
    Fill(
        needs_.hidden_layers.size(), [&](size_t) { return size; }, 5000, &hidden_, &step_.hidden);
  }
  return step_;
}

GroupSignals MadeUpSignals::Group(int group, std::span<const Position> positions) {
  const int num_rows = static_cast<int>(positions.size());
  GroupSignals signals = {.num_rows = num_rows, .num_new_rows = step_.num_tokens};
  const bool shown = step_.kind == StepKind::kDecode || needs_.mass_in_prefill;
  if (needs_.mass == MassNeed::kNone || !shown) return signals;

  const bool all_layers = granularity_ == Granularity::kToken;
  const bool one_head = granularity_ == Granularity::kHead;
  const int num_layers = all_layers ? shape_.num_layers : 1;
  const AttentionLayout layout(shape_, granularity_);
  const int first_stream = layout.FirstStreamOf(group);
  const int first_layer = layout.LayerOf(first_stream);
  const int first_kv_head = one_head ? layout.KvHeadOf(first_stream) : 0;
  signals.num_mass_heads = needs_.mass == MassNeed::kSummed      ? 1
                           : needs_.mass == MassNeed::kPerKvHead ? layout.NumStreamsOf(group)
                                                                 : layout.AllQueryHeadsOf(group);
  if (mass_.size() <= size_t(group)) mass_.resize(layout.num_groups());
  std::vector<float>& of_group = mass_[group];
  of_group.assign(static_cast<size_t>(signals.num_mass_heads) * num_rows, 0.0f);
  for (int l = 0, heads_before = 0; l < num_layers; ++l) {
    const int layer = first_layer + l;
    const int num_kv_heads = one_head ? 1 : shape_.NumKvHeads(layer);
    const int ratio = shape_.QueryHeadsPerKvHead(layer);
    const int first_mass_head = heads_before;
    heads_before += needs_.mass == MassNeed::kPerKvHead ? num_kv_heads : num_kv_heads * ratio;
    const bool nan_layer = fault_ == Fault::kNanLayers && Uniform(77, layer) < 0.3f;
    signals.num_layers_counted += nan_layer ? 0 : 1;
    if (nan_layer && needs_.mass == MassNeed::kSummed) continue;
    for (int q = 0; q < num_kv_heads * ratio; ++q) {
      const int head = first_kv_head * ratio + q;
      const int mass_head = needs_.mass == MassNeed::kSummed      ? 0
                            : needs_.mass == MassNeed::kPerKvHead ? first_mass_head + q / ratio
                                                                  : first_mass_head + q;
      float* mass = &of_group[static_cast<size_t>(mass_head) * num_rows];
      for (int i = 0; i < num_rows; ++i) {
        const float u = Uniform(static_cast<uint64_t>(layer) * 1000 + head + 1, positions[i]);
        mass[i] += nan_layer ? std::numeric_limits<float>::quiet_NaN() : u * u * u;
      }
    }
  }
  if (fault_ == Fault::kNanMass) {
    for (size_t i = 0; i < of_group.size(); ++i) {
      const float u = Uniform(88 + group, i);
      if (u < 0.2f) of_group[i] = std::numeric_limits<float>::quiet_NaN();
      if (u > 0.9f) of_group[i] = std::numeric_limits<float>::infinity();
    }
  }
  signals.mass = of_group;
  return signals;
}

void MadeUpForesight::AttentionLeft(int group, std::span<const Position> positions,
                                    std::span<float> left) const {
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t hash = Hash(Hash(group + 1) ^ static_cast<uint64_t>(positions[i]));
    left[i] = hash % 50 == 0 ? std::numeric_limits<float>::quiet_NaN()
                             : static_cast<float>(hash >> 40) * 0x1p-24f;
  }
}

const Foresight& SomeForesight() {
  static const MadeUpForesight kForesight;
  return kForesight;
}

PolicyHarness::PolicyHarness(Policy policy, const HarnessOptions& options)
    : options_(options),
      policy_(std::move(policy)),
      needs_(policy_.selector ? Union(policy_.scorer->Needs(), policy_.selector->Needs())
                              : policy_.scorer->Needs()),
      signals_(options.shape, policy_.granularity, needs_, options.signal_seed, options.fault),
      groups_(options.shape.NumGroups(policy_.granularity)),
      tiers_(groups_.size()) {}

Status PolicyHarness::Prefill(int num_tokens) { return Step(StepKind::kPrefill, num_tokens); }

Status PolicyHarness::Decode(int num_steps) {
  for (int i = 0; i < num_steps; ++i) EBB_RETURN_IF_ERROR(Step(StepKind::kDecode, 1));
  return OkStatus();
}

Status PolicyHarness::DecodeAtOnce(int num_tokens) { return Step(StepKind::kDecode, num_tokens); }

Status PolicyHarness::Step(StepKind kind, int num_tokens) {
  const Position first = static_cast<Position>(kinds_.size());
  std::vector<Position> appended(num_tokens);
  for (int i = 0; i < num_tokens; ++i) appended[i] = first + i;
  step_kind_ = kind;
  new_tokens_ = num_tokens;
  num_generated_ += kind == StepKind::kDecode ? num_tokens : 0;
  kinds_.insert(kinds_.end(), num_tokens,
                kind == StepKind::kDecode ? TokenKind::kGenerated : TokenKind::kGiven);
  for (int group = 0; group < num_groups(); ++group) {
    groups_[group].insert(groups_[group].end(), appended.begin(), appended.end());
    tiers_[group].resize(groups_[group].size(), Tier::kT0);
    policy_.scorer->Append(group, appended);
    if (policy_.selector) policy_.selector->Append(group, appended);
  }
  const StepSignals& step = signals_.Step(kind, first, num_tokens);
  std::vector<GroupSignals> shown;
  for (int group = 0; group < num_groups() && !needs_.Empty(); ++group) {
    shown.push_back(signals_.Group(group, groups_[group]));
  }
  if (!policy_.scorer->Needs().Empty()) policy_.scorer->Observe(shown, step);
  if (policy_.selector && !needs_.Empty()) policy_.selector->Observe(shown, step);
  if (kind == StepKind::kPrefill && num_steps_ == 0) policy_.scorer->EndFirstPrefill();
  if (kind == StepKind::kPrefill && policy_.placement) {
    EBB_RETURN_IF_ERROR(policy_.placement->Check(Input(0)));
  }
  for (int group = 0; group < num_groups() && policy_.placement; ++group) {
    EBB_RETURN_IF_ERROR(Place(group));
  }
  ++num_steps_;
  return OkStatus();
}

PlacementInput PolicyHarness::Input(int group) {
  const auto generated = std::find(kinds_.begin(), kinds_.end(), TokenKind::kGenerated);
  PlacementInput input = {.group = group,
                          .num_groups = num_groups(),
                          .positions = groups_[group],
                          .tiers = tiers_[group],
                          .kinds = kinds_,
                          .first_generated = static_cast<Position>(generated - kinds_.begin()),
                          .next_position = static_cast<Position>(kinds_.size()),
                          .generated_tokens = num_generated_,
                          .new_tokens = new_tokens_,
                          .step_kind = step_kind_};
  if (policy_.placement && policy_.placement->NeedsScores()) input.scores = Scores(group);
  return input;
}

Status PolicyHarness::Place(int group) {
  const PlacementInput input = Input(group);
  if (!policy_.placement->Due(input, groups_[group].size())) return OkStatus();
  EBB_RETURN_IF_ERROR(policy_.placement->Check(input));
  std::vector<Move> moves;
  policy_.placement->Place(input, &moves);
  std::vector<Tier> tiers = tiers_[group];
  std::vector<uint32_t> kept;
  auto move = moves.begin();
  for (uint32_t row = 0; row < groups_[group].size(); ++row) {
    if (move != moves.end() && move->row == row) {
      if (move->to == tiers[row]) return Internal("a move to where the row lies already");
      tiers[row] = (move++)->to;
    }
    if (tiers[row] != Tier::kT3) {
      kept.push_back(row);
    } else {
      evictions_.push_back({num_steps_, group, groups_[group][row]});
    }
  }
  if (move != moves.end()) {
    return Internal("moves are not ascending, name a row twice or one that the group has not");
  }
  tiers_[group] = std::move(tiers);
  if (kept.size() < groups_[group].size()) Retain(group, kept);
  return OkStatus();
}

void PolicyHarness::Retain(int group, std::span<const uint32_t> kept) {
  policy_.scorer->Retain(group, kept);
  if (policy_.selector) policy_.selector->Retain(group, kept);
  std::vector<Position> positions;
  std::vector<Tier> tiers;
  for (const uint32_t row : kept) {
    positions.push_back(groups_[group][row]);
    tiers.push_back(tiers_[group][row]);
  }
  groups_[group] = std::move(positions);
  tiers_[group] = std::move(tiers);
}

void PolicyHarness::TruncateTo(Position end) {
  kinds_.resize(std::min<size_t>(kinds_.size(), end));
  for (int group = 0; group < num_groups(); ++group) {
    std::vector<uint32_t> kept;
    for (uint32_t row = 0; row < groups_[group].size(); ++row) {
      if (groups_[group][row] < end) kept.push_back(row);
    }
    Retain(group, kept);
  }
}

void PolicyHarness::Remove(int group, std::span<const uint32_t> rows) {
  std::vector<uint32_t> kept;
  for (uint32_t row = 0; row < groups_[group].size(); ++row) {
    if (!std::binary_search(rows.begin(), rows.end(), row)) kept.push_back(row);
  }
  Retain(group, kept);
}

}  // namespace ebb
