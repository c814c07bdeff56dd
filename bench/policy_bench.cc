// Measures what a policy costs per decode step, without a model: append, observe, place and retain,
// over all groups, with the cache at its budget, at SmolLM2's shape. A decode step of SmolLM2 takes
// about 5.4 ms with 1,024 rows and 8 ms with 8,000. A policy may take 5 % of that; rkv, thinkv and
// lazy_eviction, which read more signals, 15 %.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "ebb/policy.h"

namespace ebb {
namespace {

const PolicyContext kContext = {.shape = {.num_layers = 30,
                                          .num_q_heads = 9,
                                          .num_kv_heads = 3,
                                          .head_dim = 64,
                                          .embed_dim = 576,
                                          .vocab_size = 49152,
                                          .trained_context = 8192},
                                .row_bytes = 256,
                                .max_tokens = 8192};

// Sequence calls a policy as the engine does in each step, without a cache.
class Sequence {
 public:
  Sequence(const PolicySpec& spec, int num_given)
      : policy_(*MakePolicy(spec, kContext)),
        groups_(kContext.shape.NumGroups(policy_.granularity)),
        observes_(!policy_.scorer->Needs().Empty()) {
    std::mt19937 random(1);
    // The random mass resembles attention: a few rows have much, and most have less than an even
    // share of 8,000 rows.
    std::exponential_distribution<float> exponential;
    for (float& x : mass_) x = std::pow(exponential(random), 3.0f) / (6 * 8000);
    std::normal_distribution<float> normal;
    for (float& x : vectors_) x = normal(random);
    Step(StepKind::kPrefill, num_given);
    policy_.scorer->EndFirstPrefill();
  }

  void Decode() { Step(StepKind::kDecode, 1); }

  [[nodiscard]] size_t max_rows() const {
    size_t most = 0;
    for (const auto& positions : groups_) most = std::max(most, positions.size());
    return most;
  }

 private:
  void Step(StepKind kind, int num_tokens) {
    const Position first = static_cast<Position>(kinds_.size());
    appended_.resize(num_tokens);
    std::iota(appended_.begin(), appended_.end(), first);
    kinds_.insert(kinds_.end(), num_tokens,
                  kind == StepKind::kPrefill ? TokenKind::kGiven : TokenKind::kGenerated);
    num_decode_steps_ += kind == StepKind::kDecode ? 1 : 0;
    const StepSignals step = Signals(kind, first, num_tokens);
    const int num_groups = static_cast<int>(groups_.size());
    const bool apart = policy_.scorer->GroupsAreIndependent();
    for (int group = 0; group < num_groups; ++group) {
      groups_[group].insert(groups_[group].end(), appended_.begin(), appended_.end());
      policy_.scorer->Append(group, appended_);
      if (!apart) continue;
      if (observes_) policy_.scorer->ObserveGroup(group, Shown(group, num_tokens), step);
      if (policy_.placement) Place(group, kind);
    }
    if (apart) return;
    shown_.clear();
    for (int group = 0; group < num_groups; ++group) shown_.push_back(Shown(group, num_tokens));
    if (observes_) policy_.scorer->Observe(shown_, step);
    for (int group = 0; group < num_groups && policy_.placement; ++group) Place(group, kind);
  }

  // Returns the signals of a group, each from another part of mass_, so that groups do not share
  // cached memory, as in the engine.
  GroupSignals Shown(int group, int num_tokens) const {
    const size_t heads = HeadsOfMass();
    const size_t floats = heads * groups_[group].size();
    const size_t salt = kinds_.size() * 97 + static_cast<size_t>(group) * floats;
    return {.mass = std::span(mass_).subspan(salt % (mass_.size() - floats), floats),
            .num_mass_heads = static_cast<int>(heads),
            .num_rows = static_cast<int>(groups_[group].size()),
            .num_new_rows = num_tokens,
            .num_layers_counted = 1};
  }

  [[nodiscard]] size_t HeadsOfMass() const {
    if (policy_.scorer->Needs().mass != MassNeed::kPerQueryHead) return 1;
    const ModelShape& shape = kContext.shape;
    return size_t(shape.num_layers) * shape.num_q_heads / groups_.size();
  }

  // Returns the signals of a step with every vector that a scorer may read, filled with random
  // numbers.
  StepSignals Signals(StepKind kind, Position first, int num_tokens) const {
    const ModelShape& shape = kContext.shape;
    StepSignals step = {.kind = kind, .first_position = first, .num_tokens = num_tokens};
    const auto some = [&](size_t salt, size_t floats) {
      return std::span(vectors_).subspan((kinds_.size() * 31 + salt * 57) % kSalts, floats);
    };
    const size_t floats = size_t(num_tokens) * shape.num_kv_heads * shape.head_dim;
    step.num_recent = kQueries;
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      step.keys.push_back(some(layer, floats));
      step.values.push_back(some(layer + 100, floats));
      step.recent_queries.push_back(
          some(layer + 200, size_t(kQueries) * shape.num_q_heads * shape.head_dim));
    }
    step.hidden_layers = policy_.scorer->Needs().hidden_layers;
    for (const int layer : step.hidden_layers) {
      step.hidden.push_back(some(layer + 300, size_t(num_tokens) * shape.embed_dim));
    }
    return step;
  }

  void Place(int group, StepKind kind) {
    std::vector<Position>& positions = groups_[group];
    PlacementInput input = {.group = group,
                            .num_groups = static_cast<int>(groups_.size()),
                            .positions = positions,
                            .kinds = kinds_,
                            .next_position = static_cast<Position>(kinds_.size()),
                            .generated_tokens = num_decode_steps_,
                            .step_kind = kind};
    if (!policy_.placement->Due(input, positions.size())) return;
    if (policy_.placement->NeedsScores()) input.scores = policy_.scorer->Scores(group);
    moves_.clear();
    policy_.placement->Place(input, &moves_);
    if (moves_.empty()) return;
    kept_.resize(positions.size());
    size_t num_kept = 0;
    uint32_t from = 0;
    for (const Move& move : moves_) {
      std::iota(kept_.begin() + num_kept, kept_.begin() + num_kept + (move.row - from), from);
      num_kept += move.row - from;
      from = move.row + 1;
    }
    std::iota(kept_.begin() + num_kept, kept_.end() - moves_.size(), from);
    kept_.resize(positions.size() - moves_.size());
    policy_.scorer->Retain(group, kept_);
    for (size_t i = moves_.front().row; i < kept_.size(); ++i) positions[i] = positions[kept_[i]];
    positions.resize(kept_.size());
  }

  static constexpr size_t kSalts = 1 << 14;
  static constexpr int kQueries = 8;

  Policy policy_;
  std::vector<std::vector<Position>> groups_;
  const bool observes_;
  std::vector<float> mass_ = std::vector<float>(3 << 20);
  std::vector<GroupSignals> shown_;  // [groups], of a step
  std::vector<float> vectors_ = std::vector<float>(kSalts + (1 << 18));
  std::vector<TokenKind> kinds_;
  std::vector<Position> appended_;
  std::vector<Move> moves_;
  std::vector<uint32_t> kept_;
  int64_t num_decode_steps_ = 0;
};

struct Setting {
  const char* label;
  const char* policy;
  Granularity granularity;
  int budget_rows;
  int interval;
};

constexpr Granularity kToken = Granularity::kToken;
constexpr Granularity kLayer = Granularity::kLayer;
constexpr Granularity kHead = Granularity::kHead;

constexpr Setting kSettings[] = {
    {"h2o, 90 groups x 1,024 rows", "h2o", kHead, 1024, 1},
    {"h2o, 90 groups x 8,000 rows", "h2o", kHead, 8000, 1},
    {"streaming, 1 group x 1,024 rows", "streaming", kToken, 1024, 1},
    {"attention, 1 group x 1,024 rows", "attention", kToken, 1024, 64},
    {"attention, 90 groups x 1,024 rows", "attention", kHead, 1024, 64},
    {"attention, 90 groups x 1,024 rows, each step", "attention", kHead, 1024, 1},
    {"random, 90 groups x 1,024 rows, each step", "random", kHead, 1024, 1},
    {"attention_mean, 1 group x 8,000 rows", "attention_mean", kToken, 8000, 64},
    {"attention_recent, 1 group x 8,000 rows", "attention_recent", kToken, 8000, 64},
    {"tova, 30 groups x 8,000 rows", "tova", kLayer, 8000, 1},
    {"vatp, 90 groups x 8,000 rows", "vatp", kHead, 8000, 1},
    {"rkv, 90 groups x 1,024 rows", "rkv", kHead, 1024, 128},
    {"redundancy, 1 group x 8,000 rows", "redundancy", kToken, 8000, 64},
    {"combined, 1 group x 8,000 rows", "combined", kToken, 8000, 64},
    {"lazy_eviction, 90 groups of 3 heads x 8,000 rows", "lazy_eviction", kHead, 8000, 64},
    {"raas, 30 groups x 8,000 rows", "raas", kLayer, 8000, 1},
    {"thinkv, 1 group of 270 heads x 1,024 rows", "thinkv", kToken, 1024, 1},
    {"thinkv_original, 1 group of 270 heads x 1,024 rows", "thinkv_original", kToken, 1024, 1},
    {"segment_hs, 1 group of 270 heads x 1,024 rows", "segment_hs", kToken, 1024, 1},
    {"epikv, 1 group x 8,000 rows", "epikv", kToken, 8000, 1},
    {"band_adaptive, 1 group x 8,000 rows", "band_adaptive", kToken, 8000, 1},
    {"kv_key, 1 group x 8,000 rows", "kv_key", kToken, 8000, 1},
    {"lag_kv, 1 group x 8,000 rows", "lag_kv", kToken, 8000, 1},
    {"attn_hs, 1 group x 8,000 rows", "attn_hs", kToken, 8000, 1},
};

void BM_PolicyStep(benchmark::State& state) {
  const Setting& setting = kSettings[state.range(0)];
  const Budget budget = {Budget::Unit::kRows, static_cast<double>(setting.budget_rows)};
  Sequence sequence({.name = setting.policy,
                     .budget = budget,
                     .interval = setting.interval,
                     .granularity = setting.granularity},
                    256);
  // The cache is filled by a number of steps, not up to a number of rows: a policy may keep fewer
  // rows than its budget, so the budget might never be reached.
  for (int i = 0; i < setting.budget_rows; ++i) sequence.Decode();
  while (state.KeepRunning()) sequence.Decode();
  const size_t most = setting.budget_rows + setting.interval - 1;
  if (sequence.max_rows() > most) state.SkipWithError("the cache is over its budget");
  state.SetLabel(setting.label);
}
BENCHMARK(BM_PolicyStep)->DenseRange(0, std::size(kSettings) - 1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ebb
