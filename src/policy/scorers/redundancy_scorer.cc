// Scores rows as the two ablations of "Not All Thoughts Need HBM" (4.11, Table 12) that name
// redundancy; the paper gives words, no formula [ours: all of the following].
//   redundancy:  s_i - w U r_i            ("attn - redundancy")
//   combined:    s_i |v_i| / m - w U r_i  ("attn x val - redundancy")
// s_i is the row's cumulative attention (Eq. 1). r_i is the mean cosine similarity of the row's
// key, after RoPE as in R-KV, to the keys of the up to 8 tokens before it, as a mean over the
// (layer, kv head) pairs of the group; it never changes. U, the sum over the steps so far of 1 /
// rows, is the s of a row that always received an even share, so that both summands grow alike.
// |v_i| is the L1 norm of the row's value as in VATP, m its mean over all rows so far. w is 1.
#include <fmt/format.h>

#include <algorithm>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

constexpr float kDefaultWeight = 1;
constexpr int kDefaultNeighbours = 8;
constexpr float kSmallestNorm = 1e-8f;

enum class Signals { kAttention, kAttentionAndValues };

class RedundancyScorer final : public ColumnScorer {
 public:
  RedundancyScorer(const ScorerContext& context, Signals signals)
      : ColumnScorer(context),
        signals_(signals),
        neighbours_(context.params.Int("neighbours", kDefaultNeighbours)),
        weight_(context.params.Number("weight", kDefaultWeight)),
        last_keys_(this, size_t(layout_.num_streams()) * neighbours_ * layout_.head_dim()) {}

  std::string Name() const override {
    return fmt::format("{}:weight={:g},neighbours={}",
                       signals_ == Signals::kAttention ? "redundancy" : "combined", weight_,
                       neighbours_);
  }
  SignalNeeds Needs() const override {
    return {.mass = MassNeed::kSummed,
            .keys = true,
            .values = signals_ == Signals::kAttentionAndValues};
  }

  bool ComparesKeys() const override { return true; }

  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override {
    // If a roll-back left no row, U and m start at 0 again. If it leaves rows, the sums stay as
    // they are, since the rows also keep the attention of removed queries [ours].
    if (signals.num_rows == step.num_tokens) {
      even_shares_[group] = norm_sums_[group] = num_tokens_[group] = 0;
    }
    if (step.first_position != next_[group]) num_neighbours_[group] = 0;
    next_[group] = step.first_position + step.num_tokens;
    for (int token = 0; token < step.num_tokens; ++token) ObserveToken(group, step, token);
    if (!ShowsDecodeMass(signals, step)) return;
    AddMeanMass(signals, layout_.QueryHeadsOf(group), sums_[group]);
    even_shares_[group] += 1.0f / static_cast<float>(signals.num_rows);
  }

  void EndFirstPrefill() override { sums_.SetAllToZero(); }

  std::span<const float> Scores(int group) override {
    const std::span<float> scores = scores_[group];
    const std::span<const float> sums = sums_[group];
    const std::span<const float> similarities = similarities_[group];
    const std::span<const float> norms = norms_[group];
    const float mean = norm_sums_[group] / std::max(1.0f, num_tokens_[group]);
    const float per_norm =
        signals_ == Signals::kAttentionAndValues && mean > 0 ? 1.0f / mean : 0.0f;
    const float penalty = weight_ * even_shares_[group];
    for (size_t i = 0; i < scores.size(); ++i) {
      const float by = signals_ == Signals::kAttention ? 1.0f : norms[i] * per_norm;
      scores[i] = sums[i] * by - penalty * similarities[i];
    }
    return scores;
  }

 private:
  void ObserveToken(int group, const StepSignals& step, int token) {
    const size_t back = step.num_tokens - token;
    const auto seen = static_cast<size_t>(num_neighbours_[group]);
    float similarity = 0;
    float norm = 0;
    const int first = layout_.FirstStreamOf(group), num_streams = layout_.NumStreamsOf(group);
    for (int stream = first; stream < first + num_streams; ++stream) {
      similarity += MeetNeighbours(stream, VectorOf(step.keys, layout_, stream, token), seen);
      if (signals_ == Signals::kAttentionAndValues) {
        norm += L1Norm(VectorOf(step.values, layout_, stream, token));
      }
    }
    num_tokens_[group] += 1;
    num_neighbours_[group] += 1;
    const auto streams = static_cast<float>(num_streams);
    similarities_[group].last(back).front() = similarity / streams;
    norms_[group].last(back).front() = norm / streams;
    norm_sums_[group] += norm / streams;
  }

  // Returns the mean cosine similarity of a key to its stream's last keys, and adds the key to
  // them.
  float MeetNeighbours(int stream, std::span<const float> key, size_t num_seen) {
    const size_t dim = key.size();
    float* ring = &last_keys_[size_t(stream) * neighbours_ * dim];
    float* unit = ring + num_seen % neighbours_ * dim;
    const size_t num_neighbours = std::min<size_t>(num_seen, neighbours_);
    float length = 0;
    for (const float x : key) length += FiniteOr0(x) * FiniteOr0(x);
    const float by = 1.0f / (std::sqrt(length) + kSmallestNorm);
    float sum = 0;  // before the oldest neighbour is overwritten
    for (size_t n = 0; n < num_neighbours; ++n) {
      for (size_t c = 0; c < dim; ++c) sum += ring[n * dim + c] * FiniteOr0(key[c]) * by;
    }
    for (size_t c = 0; c < dim; ++c) unit[c] = FiniteOr0(key[c]) * by;
    return num_neighbours == 0 ? 0.0f : sum / static_cast<float>(num_neighbours);
  }

  const Signals signals_;
  const int neighbours_;
  const float weight_;
  Column<float> sums_{this}, similarities_{this}, norms_{this};
  GroupNumbers<float> even_shares_{this}, norm_sums_{this}, num_tokens_{this};  // up to 2^24
  // Counts the tokens whose keys were added since the last roll-back; next_ is the position after
  // them.
  GroupNumbers<float> num_neighbours_{this};
  SavedList<float> last_keys_;  // [streams, neighbours, head_dim], of length 1
  GroupNumbers<Position> next_{this};
};

}  // namespace

std::unique_ptr<Scorer> MakeRedundancyScorer(const ScorerContext& context) {
  return std::make_unique<RedundancyScorer>(context, Signals::kAttention);
}
std::unique_ptr<Scorer> MakeCombinedScorer(const ScorerContext& context) {
  return std::make_unique<RedundancyScorer>(context, Signals::kAttentionAndValues);
}

}  // namespace ebb
