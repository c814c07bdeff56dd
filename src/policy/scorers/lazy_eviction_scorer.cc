// Scores rows as "LazyEviction" does (004, section 4, with the published code where the text has
// gaps): in decode steps t = 1, 2, ... , per query head
//   TS_i = t when A_i >= alpha; 0 at first for given rows, t - 1 for the row of step t
//   MRI_i = max(MRI_i, TS_new - TS_old), 0 at birth
//   H1 = 2 f(1 + (t - TS) / (MRI + 1e-5)),  H2 = 2 f(MRI - 1), but 0 where MRI is 0
//   score = H1 + H2,  f(x) = 1 / (1 + exp(x))
// A deviation: rows are stored per kv head, so all query heads of a group decide together, by the
// mean of their scores. heads=kv tracks one TS and MRI per row instead, from the mean of A.
//
// h1 and h2 choose among the forms that App. D tried [ours: the paper gives only their names; all
// fall from 1 at 0 and have the same arguments, x = (t - TS) / (MRI + 1e-5) and x = MRI - 1]: exp:
// exp(-x); tanh: 1 - tanh(x); log: 1 / (1 + log(1 + x)); inverse: 1 / (1 + x); none omits the
// summand (5.3, Table 4). The default of alpha is 1e-4; App. C has 5e-4 for R1-Llama-8B and 1e-4
// for other models.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

constexpr float kDefaultAlpha = 1e-4f;
constexpr float kEpsilon = 1e-5f;
// Steps are stored in 16 bits. When the count reaches kMaxStep, the scorer subtracts kRebase from
// all stored steps; those below kRebase become 0, which forgets how old they were.
constexpr uint32_t kMaxStep = 65535;
constexpr uint32_t kRebase = 32768;
constexpr size_t kBlock = 128;  // rows

enum class Form { kSigmoid, kExp, kTanh, kLog, kInverse, kNone };

Form ParseForm(std::string_view name) {
  if (name == "exp") return Form::kExp;
  if (name == "tanh") return Form::kTanh;
  if (name == "log") return Form::kLog;
  if (name == "inverse") return Form::kInverse;
  return name == "none" ? Form::kNone : Form::kSigmoid;
}

// Returns f(x) of the form. REQUIRES: x >= 0, except for H2's argument of a row with MRI 0, whose
// result is not used.
float Falling(Form form, float x) {
  switch (form) {
    case Form::kSigmoid:
      return 2.0f / (1.0f + std::exp(x));
    case Form::kExp:
      return std::exp(-x);
    case Form::kTanh:
      return 1.0f - std::tanh(x);
    case Form::kLog:
      return 1.0f / (1.0f + std::log1p(x));
    case Form::kInverse:
      return 1.0f / (1.0f + x);
    case Form::kNone:
      return 0.0f;
  }
  return 0.0f;
}

// Updates TS and MRI for one block of rows of one head. Most blocks have no row that reaches alpha,
// and return early.
void StampBlock(const float* mass, float threshold, uint16_t now, size_t num_rows, uint16_t* stamps,
                uint16_t* intervals) {
  uint16_t reached[kBlock];
  uint16_t any = 0;
  for (size_t i = 0; i < num_rows; ++i) {
    reached[i] = mass[i] >= threshold ? 0xffff : 0;
    any |= reached[i];
  }
  if (any == 0) return;
  for (size_t i = 0; i < num_rows; ++i) {
    const auto elapsed = static_cast<uint16_t>((now - stamps[i]) & reached[i]);
    intervals[i] = std::max(intervals[i], elapsed);
    stamps[i] = static_cast<uint16_t>((stamps[i] & ~reached[i]) | (now & reached[i]));
  }
}

class LazyEvictionScorer final : public ColumnScorer {
 public:
  explicit LazyEvictionScorer(const ScorerContext& context)
      : ColumnScorer(context),
        heads_word_(context.params.Word("heads", "query")),
        h1_word_(context.params.Word("h1", "sigmoid")),
        h2_word_(context.params.Word("h2", "sigmoid")),
        h1_(ParseForm(h1_word_)),
        h2_(ParseForm(h2_word_)),
        alpha_(context.params.Number("alpha", kDefaultAlpha)),
        first_head_(FirstHeads(heads_word_ == "kv", layout_)),
        stamps_(this, first_head_),
        intervals_(this, first_head_),
        num_steps_(this) {}

  std::string Name() const override {
    return fmt::format("lazy_eviction:alpha={:g},heads={},h1={},h2={}", alpha_, heads_word_,
                       h1_word_, h2_word_);
  }
  bool GroupsAreIndependent() const override { return heads_word_ != "kv"; }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override {
    return {.mass = heads_word_ == "kv" ? MassNeed::kSummed : MassNeed::kPerQueryHead};
  }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (step.kind != StepKind::kDecode) return;
    if (num_steps_[group] == kMaxStep) Rebase(group);
    const auto now = static_cast<uint16_t>(++num_steps_[group]);
    if (!ShowsDecodeMass(signals, step)) return;
    if (heads_word_ == "kv") {
      const float threshold = alpha_ * static_cast<float>(layout_.QueryHeadsOf(group)) *
                              static_cast<float>(signals.num_layers_counted);
      Stamp(first_head_[group], SummedMass(signals, &summed_), threshold, now);
      return;
    }
    assert(signals.num_mass_heads == NumHeads(group));
    for (int head = 0; head < NumHeads(group); ++head) {
      Stamp(first_head_[group] + head, MassOfHead(signals, head), alpha_, now);
    }
  }

  std::span<const float> Scores(int group) override {
    const std::span<float> scores = scores_[group];
    std::ranges::fill(scores, 0.0f);
    const float weight = 1.0f / static_cast<float>(NumHeads(group));
    for (int head = first_head_[group]; head < first_head_[group + 1]; ++head) {
      const std::span<const uint16_t> stamps = stamps_[head];
      const std::span<const uint16_t> intervals = intervals_[head];
      for (size_t i = 0; i < scores.size(); ++i) {
        scores[i] += weight * Score(num_steps_[group] - stamps[i], intervals[i]);
      }
    }
    return scores;
  }

 protected:
  // Sets TS of new rows, given ones too, to the step before their first one, whether this sequence
  // computes them or takes them from another sequence.
  void InitRows(int group, std::span<const Position> positions) override {
    const auto born = static_cast<uint16_t>(num_steps_[group]);
    for (int head = first_head_[group]; head < first_head_[group + 1]; ++head) {
      std::ranges::fill(stamps_[head].last(positions.size()), born);
    }
  }

 private:
  static std::vector<int> FirstHeads(bool one_per_group, const AttentionLayout& layout) {
    std::vector<int> first = {0};
    for (int group = 0; group < layout.num_groups(); ++group) {
      first.push_back(first.back() + (one_per_group ? 1 : layout.AllQueryHeadsOf(group)));
    }
    return first;
  }
  [[nodiscard]] int NumHeads(int group) const {
    return first_head_[group + 1] - first_head_[group];
  }
  void Stamp(int head, std::span<const float> mass, float threshold, uint16_t now) {
    const std::span<uint16_t> stamps = stamps_[head];
    const std::span<uint16_t> intervals = intervals_[head];
    for (size_t begin = 0; begin < mass.size(); begin += kBlock) {
      StampBlock(mass.data() + begin, threshold, now, std::min(kBlock, mass.size() - begin),
                 stamps.data() + begin, intervals.data() + begin);
    }
  }

  [[nodiscard]] float Score(uint32_t elapsed, uint16_t interval) const {
    float score = 0;
    const auto mri = static_cast<float>(interval);
    const float x = static_cast<float>(elapsed) / (mri + kEpsilon);
    if (h1_ != Form::kNone) score += Falling(h1_, h1_ == Form::kSigmoid ? 1.0f + x : x);
    if (interval != 0) score += Falling(h2_, mri - 1.0f);
    return score;
  }

  void Rebase(int group) {
    num_steps_[group] -= kRebase;
    for (int head = first_head_[group]; head < first_head_[group + 1]; ++head) {
      for (uint16_t& stamp : stamps_[head]) {
        stamp = static_cast<uint16_t>(std::max<uint32_t>(stamp, kRebase) - kRebase);
      }
    }
  }

  const std::string heads_word_, h1_word_, h2_word_;
  const Form h1_, h2_;
  const float alpha_;
  const std::vector<int> first_head_;  // [num_groups + 1], among all that are tracked
  Column<uint16_t> stamps_;            // [heads]
  Column<uint16_t> intervals_;         // [heads]
  GroupNumbers<uint32_t> num_steps_;
  std::vector<float> summed_;  // [num_rows]
};

}  // namespace

std::unique_ptr<Scorer> MakeLazyEvictionScorer(const ScorerContext& context) {
  return std::make_unique<LazyEvictionScorer>(context);
}

}  // namespace ebb
