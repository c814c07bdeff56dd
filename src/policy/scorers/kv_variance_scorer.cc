// Scores a token as KV-key and KV-val of "EpiKV" (002, 3.3) do: by the variance of its key or value
// vector across the head dimension, as a mean over the (layer, kv head) pairs of the group [ours:
// the paper does not say], then as a mean over the trailing 64 tokens. The score is computed when
// the token is read or generated and never changes. Keys are as stored, after RoPE: the paper found
// no difference (App. E). A roll-back empties the window [ours].
#include <algorithm>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/rolling.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

enum class Of { kKeys, kValues };

float Variance(std::span<const float> x) {
  double sum = 0;
  for (const float v : x) sum += FiniteOr0(v);
  const double mean = sum / static_cast<double>(x.size());
  double squares = 0;
  for (const float v : x) squares += (FiniteOr0(v) - mean) * (FiniteOr0(v) - mean);
  return FiniteOr0(static_cast<float>(squares / static_cast<double>(x.size())));
}

class KvVarianceScorer final : public ColumnScorer {
 public:
  KvVarianceScorer(const ScorerContext& context, Of of)
      : ColumnScorer(context), of_(of), windows_(this, num_groups()), next_(this) {}

  std::string Name() const override { return of_ == Of::kKeys ? "kv_key" : "kv_val"; }
  SignalNeeds Needs() const override {
    return {.keys = of_ == Of::kKeys, .values = of_ == Of::kValues};
  }

  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    const auto& vectors = of_ == Of::kKeys ? step.keys : step.values;
    const int streams = layout_.NumStreamsOf(group), first = layout_.FirstStreamOf(group);
    const std::span<float> scores = scores_[group].last(step.num_tokens);
    if (step.first_position != next_[group]) windows_[group].Clear();
    next_[group] = step.first_position + step.num_tokens;
    for (int token = 0; token < step.num_tokens; ++token) {
      float sum = 0;
      for (int s = 0; s < streams; ++s) {
        sum += Variance(VectorOf(vectors, layout_, first + s, token));
      }
      windows_[group].Push(FiniteOr0(sum / static_cast<float>(streams)));
      scores[token] = windows_[group].Mean();
    }
  }

 private:
  const Of of_;
  SavedList<Rolling> windows_;   // [num_groups]
  GroupNumbers<Position> next_;  // the position that goes on with the window
};

}  // namespace

std::unique_ptr<Scorer> MakeKvKeyScorer(const ScorerContext& context) {
  return std::make_unique<KvVarianceScorer>(context, Of::kKeys);
}
std::unique_ptr<Scorer> MakeKvValScorer(const ScorerContext& context) {
  return std::make_unique<KvVarianceScorer>(context, Of::kValues);
}

}  // namespace ebb
