// What a policy costs per decode step, without a model: append, observe, place and retain, over all
// groups, with the cache at its budget. SmolLM2's shape; its decode step takes about 5.4 ms, and a
// policy may take 5 % of it.
#include <benchmark/benchmark.h>

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

// One sequence without its cache: what the engine does around a policy.
class Sequence {
 public:
  Sequence(const PolicySpec& spec, int num_given)
      : policy_(*MakePolicy(spec, kContext)),
        groups_(kContext.shape.NumGroups(policy_.granularity)),
        observes_(!policy_.scorer->Needs().Empty()) {
    std::mt19937 random(1);
    std::exponential_distribution<float> mass(1000.0f);
    // Several rows of mass, so that the row that goes is not always the same.
    for (float& x : mass_) x = mass(random);
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
    const StepSignals step = {.kind = kind, .first_position = first, .num_tokens = num_tokens};
    for (int group = 0; group < static_cast<int>(groups_.size()); ++group) {
      std::vector<Position>& positions = groups_[group];
      positions.insert(positions.end(), appended_.begin(), appended_.end());
      policy_.scorer->Append(group, appended_);
      if (observes_) {
        const size_t salt = kinds_.size() * 97 + static_cast<size_t>(group) * 31;
        const size_t offset = salt % (mass_.size() - kMaxRows);
        policy_.scorer->Observe(group,
                                {.mass = std::span(mass_).subspan(offset, positions.size()),
                                 .num_mass_heads = 1,
                                 .num_rows = static_cast<int>(positions.size()),
                                 .num_new_rows = num_tokens,
                                 .num_layers_counted = 1},
                                step);
      }
      if (policy_.placement) Place(group, kind);
    }
  }

  void Place(int group, StepKind kind) {
    std::vector<Position>& positions = groups_[group];
    PlacementInput input = {.group = group,
                            .num_groups = static_cast<int>(groups_.size()),
                            .positions = positions,
                            .kinds = kinds_,
                            .next_position = static_cast<Position>(kinds_.size()),
                            .decode_steps = num_decode_steps_,
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

  static constexpr size_t kMaxRows = 1 << 15;

  Policy policy_;
  std::vector<std::vector<Position>> groups_;
  const bool observes_;
  std::vector<float> mass_ = std::vector<float>(2 * kMaxRows);
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

constexpr Setting kSettings[] = {
    {"h2o, 90 groups x 1,024 rows", "h2o", Granularity::kHead, 1024, 1},
    {"h2o, 90 groups x 8,000 rows", "h2o", Granularity::kHead, 8000, 1},
    {"streaming, 1 group x 1,024 rows", "streaming", Granularity::kToken, 1024, 1},
    {"attention, 1 group x 1,024 rows", "attention", Granularity::kToken, 1024, 64},
    {"attention, 90 groups x 1,024 rows", "attention", Granularity::kHead, 1024, 64},
    {"attention, 90 groups x 1,024 rows, each step", "attention", Granularity::kHead, 1024, 1},
    {"random, 90 groups x 1,024 rows, each step", "random", Granularity::kHead, 1024, 1},
};

void BM_PolicyStep(benchmark::State& state) {
  const Setting& setting = kSettings[state.range(0)];
  const Budget budget = {Budget::Unit::kRows, static_cast<double>(setting.budget_rows)};
  Sequence sequence({.name = setting.policy,
                     .budget = budget,
                     .interval = setting.interval,
                     .granularity = setting.granularity},
                    256);
  while (sequence.max_rows() < static_cast<size_t>(setting.budget_rows)) sequence.Decode();
  while (state.KeepRunning()) sequence.Decode();
  const size_t most = setting.budget_rows + setting.interval - 1;
  if (sequence.max_rows() > most) state.SkipWithError("the cache is over its budget");
  state.SetLabel(setting.label);
}
BENCHMARK(BM_PolicyStep)->DenseRange(0, std::size(kSettings) - 1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace ebb
