// Dynamic Memory Sparsification ("Inference-Time Hyper-Scaling", 003, 3.1, and its published code):
// the model itself marks rows. The eviction logit alpha that is computed with token t + 1 decides
// on the row of token t of that (layer, kv head), so
//   s_t = -alpha_{t+1}
// which is below 0 where the row is marked; 0 until token t + 1 is there. At layer and token
// granularity alpha is the mean over the group's (layer, kv head) pairs [ours: the source decides
// per head].
#include <algorithm>

#include "src/policy/row_scores.h"
#include "src/policy/scorers/row_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

// Beside the score stands the position.
class DmsScorer final : public RowScorerWith<Position> {
 public:
  explicit DmsScorer(const ScorerContext& context)
      : RowScorerWith(context),
        kv_heads_(context.shape.num_kv_heads),
        streams_(context.StreamsPerGroup()) {}

  std::string Name() const override { return "dms"; }
  SignalNeeds Needs() const override { return {.eviction_logits = true}; }

  void Append(int group, std::span<const Position> positions) override {
    RowScorerWith::Append(group, positions);
    std::ranges::copy(positions, beside_[group].last(positions.size()).begin());
  }

  void Observe(int group, const GroupSignals&, const StepSignals& step) override {
    const std::span<float> scores = scores_[group];
    const std::span<const Position> positions = beside_[group];
    const size_t first_new = scores.size() - step.num_tokens;
    for (int token = 0; token < step.num_tokens; ++token) {
      const size_t before = first_new + token - 1;
      // The row before the step's own may be gone.
      if (token == 0 && (first_new == 0 || positions[before] != step.first_position - 1)) continue;
      scores[before] = 0.0f - MeanLogit(group, token, step);
    }
  }

 private:
  // What is no number marks nothing.
  [[nodiscard]] float MeanLogit(int group, int token, const StepSignals& step) const {
    float sum = 0;
    for (int s = group * streams_; s < (group + 1) * streams_; ++s) {
      sum += step.eviction_logits[s / kv_heads_][token * kv_heads_ + s % kv_heads_];
    }
    return FiniteOr0(sum / static_cast<float>(streams_));
  }

  const int kv_heads_;
  const int streams_;  // per group
};

}  // namespace

std::unique_ptr<Scorer> MakeDmsScorer(const ScorerContext& context) {
  return std::make_unique<DmsScorer>(context);
}

}  // namespace ebb
