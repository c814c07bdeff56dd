// Scores a token as Lag-KV of "EpiKV" (002, 3.3) does, after LagKV (Liang et al., 2025). Each
// channel of the token's key and value is normalised by the range of the PREVIOUS chunk of tokens,
// (x - min) / (max - min); the score is the variance of the result across the head dimension,
// summed over the key and the value (lag_key: the key alone, 4.4), as a mean over the (layer, kv
// head) pairs of the group. It is computed when the token is read or generated and never changes.
// (LagKV itself looks at the next chunk, and takes the standard deviation and a softmax over the
// chunk.)
//
// [ours: chunks are of 64 tokens from the first token on; in the first chunk the range is that of
// the tokens up to the current one; a channel without a range gives 0. A roll-back leaves the
// ranges as they are.]
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/streams.h"

namespace ebb {
namespace {

constexpr int kDefaultChunk = 64;

enum class Of { kKeysAndValues, kKeys };

// Ranges holds the range of each channel in the previous chunk and in the chunk that is being
// filled.
class Ranges {
 public:
  explicit Ranges(size_t num_channels)
      : previous_(2 * num_channels), current_(2 * num_channels), num_channels_(num_channels) {
    Reset();
  }

  void BeginChunk() {
    previous_ = current_;
    Reset();
  }

  // Adds a vector to the current chunk and returns its variance across the channels from `first`
  // on, after normalising it by the previous chunk's range; in the first chunk by its own range so
  // far, the vector included.
  float Meet(std::span<const float> x, size_t first, bool is_first_chunk) {
    float* low = current_.data() + first;
    float* high = low + num_channels_;
    for (size_t c = 0; c < x.size(); ++c) {
      low[c] = std::min(low[c], FiniteOr0(x[c]));
      high[c] = std::max(high[c], FiniteOr0(x[c]));
    }
    const float* min = (is_first_chunk ? current_ : previous_).data() + first;
    const float* max = min + num_channels_;
    double sum = 0;
    double squares = 0;
    for (size_t c = 0; c < x.size(); ++c) {
      const double range = double{max[c]} - min[c];
      const double scaled = range > 0 ? (double{FiniteOr0(x[c])} - min[c]) / range : 0.0;
      sum += scaled;
      squares += scaled * scaled;
    }
    const double count = static_cast<double>(x.size());
    return FiniteOr0(
        static_cast<float>(std::max(0.0, squares / count - sum / count * sum / count)));
  }

  void Save(StateWriter* to) const {
    to->Numbers<float>(previous_);
    to->Numbers<float>(current_);
  }
  [[nodiscard]] Status Load(StateReader* from) {
    EBB_RETURN_IF_ERROR(LoadList(from, &previous_));
    return LoadList(from, &current_);
  }

 private:
  void Reset() {
    const auto middle = current_.begin() + static_cast<ptrdiff_t>(num_channels_);
    std::fill(current_.begin(), middle, std::numeric_limits<float>::max());
    std::fill(middle, current_.end(), std::numeric_limits<float>::lowest());
  }

  std::vector<float> previous_, current_;  // [2, channels]: lowest, highest
  size_t num_channels_;
};

class LagScorer final : public ColumnScorer {
 public:
  LagScorer(const ScorerContext& context, Of of)
      : ColumnScorer(context),
        of_(of),
        chunk_(context.params.Int("chunk", kDefaultChunk)),
        num_tokens_(this),
        ranges_(this, EmptyRanges()) {}

  std::string Name() const override {
    return fmt::format("{}:chunk={}", of_ == Of::kKeys ? "lag_key" : "lag_kv", chunk_);
  }
  SignalNeeds Needs() const override { return {.keys = true, .values = of_ == Of::kKeysAndValues}; }

  bool ComparesKeys() const override { return true; }

  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    const std::span<float> scores = scores_[group].last(step.num_tokens);
    const int streams = layout_.NumStreamsOf(group), first = layout_.FirstStreamOf(group);
    for (int token = 0; token < step.num_tokens; ++token) {
      if (num_tokens_[group] > 0 && num_tokens_[group] % chunk_ == 0) {
        for (int part = 0; part < Parts(); ++part) RangesOf(group, part).BeginChunk();
      }
      float sum = 0;
      for (int part = 0; part < Parts(); ++part) {
        const auto& vectors = part == 0 ? step.keys : step.values;
        for (int s = 0; s < streams; ++s) {
          sum += RangesOf(group, part)
                     .Meet(VectorOf(vectors, layout_, first + s, token),
                           size_t(s) * layout_.head_dim(), num_tokens_[group] < chunk_);
        }
      }
      scores[token] = FiniteOr0(sum / static_cast<float>(streams));
      ++num_tokens_[group];
    }
  }

 private:
  [[nodiscard]] std::vector<Ranges> EmptyRanges() const {
    std::vector<Ranges> ranges;
    for (int group = 0; group < num_groups(); ++group) {
      const size_t channels = size_t(layout_.NumStreamsOf(group)) * layout_.head_dim();
      ranges.resize(ranges.size() + Parts(), Ranges(channels));
    }
    return ranges;
  }
  [[nodiscard]] int Parts() const { return of_ == Of::kKeys ? 1 : 2; }
  Ranges& RangesOf(int group, int part) { return ranges_[size_t(group) * Parts() + part]; }

  const Of of_;
  const int chunk_;                   // tokens
  GroupNumbers<int64_t> num_tokens_;  // so far
  SavedList<Ranges> ranges_;          // [num_groups, parts]: of keys, of values
};

}  // namespace

std::unique_ptr<Scorer> MakeLagKvScorer(const ScorerContext& context) {
  return std::make_unique<LagScorer>(context, Of::kKeysAndValues);
}
std::unique_ptr<Scorer> MakeLagKeyScorer(const ScorerContext& context) {
  return std::make_unique<LagScorer>(context, Of::kKeys);
}

}  // namespace ebb
