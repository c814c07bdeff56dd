// KV-key and KV-val of "EpiKV" (002, 3.3): the variance of a token's key or value vector across the
// head dimension, mean over the (layer, kv head) pairs of the group [ours: the paper does not say],
// then the mean over the trailing 64 tokens; computed when the token is read or generated, then
// frozen. Keys are as stored, after RoPE: the paper found no difference (App. E). After a roll-back
// the window begins empty [ours].
#include <algorithm>

#include "src/policy/scorers/rolling.h"
#include "src/policy/scorers/row_scorer.h"
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

class KvVarianceScorer final : public RowScorer {
 public:
  KvVarianceScorer(const ScorerContext& context, Of of)
      : RowScorer(context),
        of_(of),
        layout_(context.Layout()),
        windows_(context.NumGroups()),
        next_(context.NumGroups()) {}

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

  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(RowScorer::SaveState(to));
    for (const Rolling& window : windows_) window.Save(to);
    to->Numbers<Position>(next_);
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(RowScorer::LoadState(from));
    for (Rolling& window : windows_) EBB_RETURN_IF_ERROR(window.Load(from));
    return LoadList(from, &next_);
  }

 private:
  const Of of_;
  const AttentionLayout layout_;
  std::vector<Rolling> windows_;  // [num_groups]
  std::vector<Position> next_;    // [num_groups], the position that goes on with the window
};

}  // namespace

std::unique_ptr<Scorer> MakeKvKeyScorer(const ScorerContext& context) {
  return std::make_unique<KvVarianceScorer>(context, Of::kKeys);
}
std::unique_ptr<Scorer> MakeKvValScorer(const ScorerContext& context) {
  return std::make_unique<KvVarianceScorer>(context, Of::kValues);
}

}  // namespace ebb
