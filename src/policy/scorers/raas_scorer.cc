// Scores rows as RaaS does (Hu et al., 2025), as "EpiKV" and "LazyEviction" describe it; no code
// was found, and the original works by page. Per token and layer, in decode steps t = 1, 2, ...:
//   TS_i = t when the attention of the step, mean over the query heads [ours], is at least alpha
// A generated row starts with TS = t, a given row with 0; rows with the oldest timestamp are
// evicted first. alpha is 1e-4 unless given: "LazyEviction" (App. C) has 5e-4 for R1-Llama-8B and
// 1e-4 for its other models.
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

constexpr float kDefaultAlpha = 1e-4f;

class RaasScorer final : public ColumnScorer {
 public:
  explicit RaasScorer(const ScorerContext& context)
      : ColumnScorer(context), alpha_(context.params.Number("alpha", kDefaultAlpha)) {}

  std::string Name() const override { return fmt::format("raas:alpha={:g}", alpha_); }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {.mass = MassNeed::kSummed}; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    if (step.kind != StepKind::kDecode) return;
    const float now = num_steps_[group] += 1;
    const std::span<float> stamps = scores_[group];
    std::ranges::fill(stamps.last(std::min<size_t>(signals.num_new_rows, stamps.size())), now);
    if (!ShowsDecodeMass(signals, step)) return;
    const std::span<const float> mass = SummedMass(signals, &summed_);
    const float threshold = alpha_ * static_cast<float>(layout_.QueryHeadsOf(group)) *
                            static_cast<float>(signals.num_layers_counted);
    float* to = stamps.data();
    for (size_t i = 0; i < mass.size(); ++i) to[i] = mass[i] >= threshold ? now : to[i];
  }

 private:
  const float alpha_;
  GroupNumbers<float> num_steps_{this};  // exact up to 2^24
  std::vector<float> summed_;            // [num_rows]
};

}  // namespace

std::unique_ptr<Scorer> MakeRaasScorer(const ScorerContext& context) {
  return std::make_unique<RaasScorer>(context);
}

}  // namespace ebb
